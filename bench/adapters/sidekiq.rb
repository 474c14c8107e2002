# The Ruby half of the adapter for Sidekiq (sidekiq.py). The command `sidekiq` requires it and runs
# its jobs, which mark themselves in the file of marks. Run as a program, it is the producer: it
# reads one JSON request per line, and answers each with one line.
require "json"
require "sidekiq"

Sidekiq.configure_server { |config| config.redis = { url: ENV.fetch("BENCH_URL") } }
Sidekiq.configure_client { |config| config.redis = { url: ENV.fetch("BENCH_URL") } }

Sidekiq.logger.level = Logger::WARN if ENV["BENCH_QUIET"] == "1"

MARKS = File.open(ENV.fetch("BENCH_MARKS"), "r+b")
SIZE = MARKS.size / 17

class Mark
  include Sidekiq::Worker
  sidekiq_options retry: false

  def perform(number, seconds)
    note(0, number)
    sleep(seconds) if seconds > 0
    note(1, number)
    runs = MARKS.pread(1, 16 * SIZE + number).unpack1("C")
    MARKS.pwrite([runs + 1].pack("C"), 16 * SIZE + number)
  end

  def note(place, number)
    now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    MARKS.pwrite([now].pack("q<"), 8 * (place * SIZE + number))
  end
end

if $PROGRAM_NAME == __FILE__
  $stdout.sync = true
  $stdin.each_line do |line|
    request = JSON.parse(line)
    numbers, seconds, delay = request["numbers"], request["seconds"] || 0, request["delay"]
    if delay
      numbers.each { |number| Mark.perform_in(delay / 1000.0, number, seconds) }
    elsif numbers.size > 1
      Sidekiq::Client.push_bulk("class" => Mark, "args" => numbers.map { |number| [number, seconds] })
    else
      Mark.perform_async(numbers[0], seconds)
    end
    puts "null"
  end
end
