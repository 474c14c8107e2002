// The Node half of the adapter for BullMQ (bullmq.py). As a worker it marks each job in the file of
// marks. As a producer it reads one JSON request per line, and answers each with one line.
import fs from "node:fs";
import { createRequire } from "node:module";
import readline from "node:readline";

const require = createRequire(process.env.BENCH_PACKAGES + "/");
const { Queue, QueueEvents, Worker } = require("bullmq");

const url = new URL(process.env.BENCH_URL);
const connection = { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null };
const keepsResults = process.env.BENCH_RESULTS === "1";
const options = { removeOnComplete: !keepsResults, removeOnFail: true };
const marks = fs.openSync(process.env.BENCH_MARKS, "r+");
const size = fs.fstatSync(marks).size / 17;

function write(place, number) {
  const now = Buffer.alloc(8);
  now.writeBigInt64LE(process.hrtime.bigint());
  fs.writeSync(marks, now, 0, 8, 8 * (place * size + number));
}

function end(number) {
  write(1, number);
  const runs = Buffer.alloc(1);
  fs.readSync(marks, runs, 0, 1, 16 * size + number);
  runs[0] += 1;
  fs.writeSync(marks, runs, 0, 1, 16 * size + number);
}

async function run(job) {
  const { number, seconds } = job.data;
  write(0, number);
  if (seconds) await new Promise((wake) => setTimeout(wake, 1000 * seconds));
  end(number);
  return number;
}

async function produce() {
  const queue = new Queue("bench", { connection, defaultJobOptions: options });
  const events = keepsResults ? new QueueEvents("bench", { connection }) : null;
  if (events) await events.waitUntilReady();
  const job = (number, seconds, delay) => ({ name: "mark", data: { number, seconds }, opts: delay ? { delay } : {} });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { numbers, seconds = 0, delay = 0, waits = false } = JSON.parse(line);
    let answer = null;
    if (numbers.length > 1) await queue.addBulk(numbers.map((number) => job(number, seconds, delay)));
    else {
      const { name, data, opts } = job(numbers[0], seconds, delay);
      const added = await queue.add(name, data, opts);
      if (waits) answer = await added.waitUntilFinished(events);
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
  }
  await queue.close();
  process.exit(0);
}

if (process.argv[2] === "work") new Worker("bench", run, { connection, concurrency: Number(process.env.BENCH_CONCURRENCY) });
else await produce();
