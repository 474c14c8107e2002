"""Many calls under way on one connection: each gets its own answer, or a clear error, whatever
happens to the others."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MovedError, ReadOnlyError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from docket.storage.client.connection import Connection, open_pipeline
from docket.storage.client.pipeline import Pipeline, keep_listening
from docket.storage.scripts import Script
from tests.waiting import eventually

from .conftest import HASTE, SECONDS, RealServer
from .scripted_server import ScriptedServer, Words, client_of, plainly

pytestmark = pytest.mark.usefixtures("no_complaints")

MEGABYTES_10 = b"x" * 10_000_000


async def outcomes(*calls: Awaitable[Any]) -> list[Any]:
    async with asyncio.timeout(SECONDS):
        return await asyncio.gather(*calls, return_exceptions=True)


async def under_way(line: Connection, *words: bytes | str | int) -> asyncio.Task[Any]:
    """A call that is sent and not answered yet."""
    await line.ask("PING")
    call = asyncio.create_task(line.ask(*words))
    await asyncio.sleep(0)
    return call


async def until_gone(blocking: Any, number: int) -> None:
    """Returns when the server has no such connection any more."""
    await eventually(lambda: not blocking.client_list(client_id=[str(number)]), "the connection is gone")


def failing_with(error: str) -> tuple[str, str, int]:
    return ("EVAL", f"return redis.error_reply('{error}')", 0)


# Answers and their callers


async def test_thousands_of_calls_at_once_get_their_own_answers(line: Connection) -> None:
    assert await outcomes(*(line.ask("ECHO", n) for n in range(5000))) == [b"%d" % n for n in range(5000)]


async def test_words_of_every_kind_and_length_arrive_as_they_were_sent(line: Connection, blocking: Any) -> None:
    words = (b"", b"\r\n$3\r\n", bytes(range(256)), "", "snow ❄ and *1\r\n", 0, -7, 2**63 - 1, MEGABYTES_10)
    await line.ask("RPUSH", "words", *words)
    sent = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    assert blocking.lrange("words", 0, -1) == sent


async def test_calls_take_effect_in_the_order_in_which_they_are_made(line: Connection, blocking: Any) -> None:
    await line.ask("PING")
    await outcomes(*(line.ask("RPUSH", "numbers", n) for n in range(100)))
    assert blocking.lrange("numbers", 0, -1) == [b"%d" % n for n in range(100)]


async def test_a_server_that_dies_while_docket_takes_the_connection_is_noticed_at_once(
    scripted_server: ScriptedServer,
) -> None:
    """redis-py has seen the end of the connection, and nobody sees it again."""
    connection = client_of(scripted_server.url).connection_pool.make_connection()
    await connection.connect()
    scripted_server.hang_up()
    await eventually(connection._reader.at_eof, "redis-py has seen the end")

    pipeline = Pipeline(connection)

    with pytest.raises(RedisConnectionError, match="closed"):
        await asyncio.wait_for(pipeline.ask(("PING",), 10 * SECONDS), SECONDS)


async def test_calls_that_come_before_there_is_a_connection_share_one(line: Connection) -> None:
    assert len(set(await outcomes(*(line.ask("CLIENT", "ID") for _ in range(50))))) == 1


async def test_a_call_that_is_given_up_does_not_shift_the_answers_of_the_others(line: Connection) -> None:
    calls = [await under_way(line, "ECHO", n) for n in range(3)]
    calls += [asyncio.create_task(line.ask("ECHO", n)) for n in range(3, 10)]
    await asyncio.sleep(0)
    for call in calls[::2]:
        call.cancel()
    kept = (await outcomes(*calls))[1::2]
    assert kept == [b"1", b"3", b"5", b"7", b"9"]


async def test_a_call_that_is_given_up_while_it_connects_does_not_take_the_others_along(line: Connection) -> None:
    first, second = (asyncio.create_task(line.ask("ECHO", n)) for n in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert isinstance((found := await outcomes(first, second))[0], asyncio.CancelledError)
    assert found[1] == b"1"


async def test_large_requests_and_answers_pass_between_small_ones(line: Connection, blocking: Any) -> None:
    calls = [line.ask("ECHO", "a"), line.ask("SET", "large", MEGABYTES_10), line.ask("GET", "large")]
    assert await outcomes(*calls, line.ask("ECHO", "z")) == [b"a", b"OK", MEGABYTES_10, b"z"]


# Errors that the server answers


async def test_an_error_is_raised_to_the_one_who_caused_it(line: Connection, blocking: Any) -> None:
    found = await outcomes(line.ask("SET", "text", "a"), line.ask("LPUSH", "text", "b"), line.ask("GET", "text"))
    assert isinstance(found[1], ResponseError)
    assert "wrong kind of value" in str(found[1])
    assert (found[0], found[2]) == (b"OK", b"a")


async def test_a_moved_slot_is_told_with_its_new_place(line: Connection) -> None:
    moved, other = await outcomes(line.ask(*failing_with("MOVED 7 127.0.0.1:7001")), line.ask("ECHO", "a"))
    assert isinstance(moved, MovedError)
    assert str(moved) == "7 127.0.0.1:7001"
    assert other == b"a"


async def test_a_server_that_became_a_replica_is_called_on_a_new_connection(line: Connection) -> None:
    before = await line.ask("CLIENT", "ID")
    with pytest.raises(ReadOnlyError):
        await line.ask(*failing_with("READONLY it is a replica"))
    assert await line.ask("CLIENT", "ID") != before


async def test_a_script_that_the_server_does_not_know_is_loaded(line: Connection, blocking: Any) -> None:
    blocking.script_flush()
    source = "return {KEYS[1], ARGV[1]}"
    script = Script("pair", source, blocking.execute_command("EVAL", "return redis.sha1hex(ARGV[1])", 0, source))
    found = await outcomes(*(line.run(script, [b"key"], [f"{n}"]) for n in range(3)), line.ask("ECHO", "a"))
    assert found == [[b"key", b"0"], [b"key", b"1"], [b"key", b"2"], b"a"]
    assert await line.ask("EVALSHA", script.sha, 1, "key", "3") == [b"key", b"3"]


# Connections that end


async def test_a_cut_connection_fails_all_calls_under_way_and_the_next_call_opens_another(
    line: Connection, blocking: Any
) -> None:
    number = await line.ask("CLIENT", "ID")
    calls = [await under_way(line, "BLPOP", "nothing", 0)]
    calls += [asyncio.create_task(line.ask("ECHO", n)) for n in range(20)]
    await asyncio.sleep(0)
    blocking.client_kill_filter(_id=number)
    assert {type(error) for error in await outcomes(*calls)} == {RedisConnectionError}
    assert await line.ask("CLIENT", "ID") != number


async def test_a_cut_connection_does_not_wait_for_a_call_that_was_given_up(line: Connection, blocking: Any) -> None:
    number = await line.ask("CLIENT", "ID")
    given_up, kept = await under_way(line, "BLPOP", "nothing", 0), asyncio.create_task(line.ask("ECHO", "a"))
    await asyncio.sleep(0)
    given_up.cancel()
    blocking.client_kill_filter(_id=number)
    assert isinstance((await outcomes(given_up, kept))[1], RedisConnectionError)


async def test_a_silent_server_is_given_up_when_patience_ends_and_called_again(
    hasty_line: Connection, blocking: Any
) -> None:
    number = await hasty_line.ask("CLIENT", "ID")
    silent = await under_way(hasty_line, "BLPOP", "nothing", 0)
    found = await outcomes(silent, hasty_line.ask("ECHO", "a"))
    assert [type(error) for error in found] == [RedisTimeoutError] * 2
    assert await hasty_line.ask("CLIENT", "ID") != number
    await until_gone(blocking, number)


async def test_a_given_up_call_that_is_never_answered_ends_the_connection_too(hasty_line: Connection) -> None:
    silent = await under_way(hasty_line, "BLPOP", "nothing", 0)
    behind = asyncio.create_task(hasty_line.ask("ECHO", "a"))
    await asyncio.sleep(0)
    silent.cancel()
    assert isinstance((await outcomes(silent, behind))[1], RedisTimeoutError)


async def test_patience_counts_from_each_call_on_its_own(hasty_line: Connection) -> None:
    number = await hasty_line.ask("CLIENT", "ID")
    for _ in range(4):
        assert await hasty_line.ask("BLPOP", "nothing", "0.2") is None
    assert await hasty_line.ask("CLIENT", "ID") == number


async def test_answers_that_came_while_the_event_loop_was_blocked_count(hasty_line: Connection, blocking: Any) -> None:
    calls = [await under_way(hasty_line, "ECHO", "a"), asyncio.create_task(hasty_line.ask("SET", "sign", "b"))]
    await asyncio.sleep(0)
    time.sleep(HASTE + 0.2)
    while not blocking.get("sign"):
        pass
    # Whoever was answered before this has the answer now.
    blocking.ping()
    assert await outcomes(*calls) == [b"a", b"OK"]


async def test_hanging_up_lets_calls_under_way_finish(line: Connection, blocking: Any) -> None:
    number = await line.ask("CLIENT", "ID")
    waiting = await under_way(line, "BLPOP", "list", 0)
    line.disconnect()
    assert await line.ask("CLIENT", "ID") != number
    assert await line.ask("RPUSH", "list", "a") == 1
    assert await waiting == [b"list", b"a"]
    await until_gone(blocking, number)


async def test_hanging_up_an_idle_line_closes_its_connection(line: Connection, blocking: Any) -> None:
    number = await line.ask("CLIENT", "ID")
    line.disconnect()
    await until_gone(blocking, number)


async def test_closing_a_line_fails_calls_under_way(line: Connection) -> None:
    waiting = await under_way(line, "BLPOP", "nothing", 0)
    await line.aclose()
    with pytest.raises(RedisConnectionError, match="was closed"):
        await waiting


async def test_where_nobody_listens_every_caller_is_told(scripted_server: ScriptedServer) -> None:
    line = Connection(client_of(scripted_server.url + "-elsewhere"), SECONDS)
    found = await outcomes(*(line.ask("PING") for _ in range(5)))
    assert {type(error) for error in found} == {RedisConnectionError}


async def test_a_wait_for_a_replica_never_comes_before_its_script(scripted_server: ScriptedServer) -> None:
    """A server that does not know the script would hear its source only after the replica has
    confirmed everything else."""
    line = Connection(client_of(scripted_server.url), SECONDS)
    script = Script("a script", "return 1", "digest")
    for _ in range(2):
        assert await line.run_and_wait(script, [b"k"], [], 1000) == (b"OK", b"OK")
    heard = [words[:2] for words in scripted_server.heard if words[0] in (b"EVAL", b"EVALSHA", b"WAIT")]
    wait = [b"WAIT", b"1"]
    assert heard == [[b"EVAL", b"return 1"], wait, [b"EVALSHA", b"digest"], wait]
    await line.aclose()


# Servers that misbehave


async def test_garbage_ends_the_connection_with_an_error_that_says_so(scripted_server: ScriptedServer) -> None:
    scripted_server.manners = [lambda words: b"HTTP/1.1 400\r\n" if words == [b"ECHO", b"0"] else plainly(words)]
    line = Connection(client_of(scripted_server.url), SECONDS)
    await line.ask("ECHO", "a")
    found = await outcomes(*(line.ask("ECHO", n) for n in range(3)))
    assert {type(error) for error in found} == {RedisConnectionError}
    assert 'an answer cannot be read: Protocol error, got "H"' in str(found[0])
    assert await line.ask("ECHO", "b") == b"b"
    assert scripted_server.connections == 2
    await line.aclose()


async def test_half_an_answer_is_no_answer(scripted_server: ScriptedServer) -> None:
    def in_halves(words: Words) -> bytes | None:
        return b"$9\r\nhal" if words == [b"ECHO", b"0"] else None if words == [b"ECHO", b"1"] else plainly(words)

    scripted_server.manners = [in_halves]
    line = Connection(client_of(scripted_server.url), SECONDS)
    await line.ask("PING")
    found = await outcomes(line.ask("ECHO", 0), line.ask("ECHO", 1))
    assert {type(error) for error in found} == {RedisConnectionError}
    assert await line.ask("ECHO", "b") == b"b"
    await line.aclose()


async def test_an_answer_that_nobody_asked_for_ends_the_connection(scripted_server: ScriptedServer) -> None:
    """Else it would be taken for the answer of the next call."""
    scripted_server.manners = [lambda words: plainly(words) * (2 if words[0] == b"ECHO" else 1)]
    line = Connection(client_of(scripted_server.url), SECONDS)
    assert await line.ask("ECHO", "a") == b"a"
    assert await line.ask("ECHO", "b") == b"b"
    assert scripted_server.connections == 2
    await line.aclose()


async def test_an_answer_in_many_pieces_is_one_answer(scripted_server: ScriptedServer) -> None:
    pieces = {b"0": b"*2\r", b"1": b"\n$3\r\nab", b"2": b"c\r\n$1\r\nd", b"3": b"\r\n+x\r\n+y\r\n+z\r\n"}
    scripted_server.manners = [lambda words: pieces[words[1]] if words[0] == b"ECHO" else plainly(words)]
    line = Connection(client_of(scripted_server.url), SECONDS)
    await line.ask("PING")
    assert await outcomes(*(line.ask("ECHO", n) for n in range(4))) == [[b"abc", b"d"], b"x", b"y", b"z"]
    await line.aclose()


async def test_a_server_that_accepts_and_says_nothing_is_given_up(scripted_server: ScriptedServer) -> None:
    scripted_server.manners = [lambda words: b""]
    line = Connection(client_of(scripted_server.url), 0.05)
    with pytest.raises(RedisTimeoutError, match=r"no answer within 0\.05 s"):
        await line.ask("PING")
    assert await line.ask("ECHO", "a") == b"a"
    await line.aclose()


async def test_a_server_that_hangs_up_on_the_greeting_is_a_lost_connection(scripted_server: ScriptedServer) -> None:
    scripted_server.manners = [lambda words: None]
    line = Connection(client_of(scripted_server.url), SECONDS)
    with pytest.raises(RedisConnectionError):
        await line.ask("PING")
    assert await line.ask("ECHO", "a") == b"a"
    await line.aclose()


# Connections that listen


async def test_a_listening_connection_that_is_silent_is_pinged_and_given_up(scripted_server: ScriptedServer) -> None:
    scripted_server.manners = [lambda words: b"" if words == [b"PING"] else plainly(words)]
    pipeline = await open_pipeline(client_of(scripted_server.url), SECONDS, lambda message: None)
    with pytest.raises(RedisTimeoutError, match="does not answer"):
        await keep_listening(pipeline, 0.02)
    assert [b"PING"] in scripted_server.heard
    pipeline.close()


async def test_a_listening_connection_that_is_cut_says_so(scripted_server: ScriptedServer) -> None:
    scripted_server.manners = [lambda words: None if words == [b"SUBSCRIBE", b"a"] else plainly(words)]
    pipeline = await open_pipeline(client_of(scripted_server.url), SECONDS, lambda message: None)
    pipeline.send("SUBSCRIBE", "a")
    with pytest.raises(RedisConnectionError, match="the server closed the connection"):
        await keep_listening(pipeline, SECONDS)


async def test_a_listener_that_fails_ends_the_connection_with_its_error(scripted_server: ScriptedServer) -> None:
    def fail(message: list[Any]) -> None:
        raise KeyError(message[1])

    pipeline = await open_pipeline(client_of(scripted_server.url), SECONDS, fail)
    pipeline.send("SUBSCRIBE", "a")
    with pytest.raises(KeyError, match="a"):
        await keep_listening(pipeline, SECONDS)


# What was once wrong


async def test_words_that_cannot_be_sent_do_not_shift_the_answers_of_others(line: Connection) -> None:
    await line.ask("PING")
    bad, good = await outcomes(line.ask("ECHO", "\ud800"), line.ask("ECHO", "a"))
    assert isinstance(bad, UnicodeEncodeError)
    assert good == b"a"


async def test_a_blocked_event_loop_is_no_silence_of_the_server(scripted_server: ScriptedServer) -> None:
    pipeline = await open_pipeline(client_of(scripted_server.url), SECONDS, lambda message: None)
    staying = asyncio.create_task(keep_listening(pipeline, 0.1))
    await asyncio.sleep(0)
    time.sleep(0.3)
    await eventually(lambda: [b"PING"] in scripted_server.heard, "the server has heard a ping")
    await asyncio.wait([staying], timeout=0.05)
    assert not staying.done()
    pipeline.close()
    with pytest.raises(RedisConnectionError):
        await staying


async def test_an_attempt_that_fails_while_it_is_given_up_is_not_reported_as_forgotten() -> None:
    class Late:
        """Its own time-out comes together with the caller's."""

        async def connect(self) -> None:
            try:
                await asyncio.sleep(SECONDS)
            except asyncio.CancelledError:
                raise RedisTimeoutError("no connection in time") from None

        async def disconnect(self, nowait: bool) -> None:
            pass

    client = SimpleNamespace(connection_pool=SimpleNamespace(make_connection=Late))
    with pytest.raises(RedisTimeoutError, match="no answer within"):
        await open_pipeline(client, 0.001)


async def test_a_retired_connection_is_closed_though_its_last_call_was_given_up(
    line: Connection, blocking: Any
) -> None:
    number = await line.ask("CLIENT", "ID")
    waiting = await under_way(line, "BLPOP", "list", 0)
    line.disconnect()
    waiting.cancel()
    await asyncio.wait([waiting])
    blocking.rpush("list", "a")
    await until_gone(blocking, number)


async def test_a_short_patience_after_a_long_one_is_short(line: Connection) -> None:
    await line.ask("PING", patience=100)
    with pytest.raises(RedisTimeoutError):
        async with asyncio.timeout(SECONDS):
            await line.ask("BLPOP", "nothing", 0, patience=0.1)


async def test_a_line_that_is_moved_while_it_connects_ends_up_at_the_new_place(real: RealServer) -> None:
    asked, may_greet = asyncio.Event(), asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The line gives up the old place before it has an answer.
        with contextlib.suppress(ConnectionResetError):
            while data := await reader.read(65536):
                asked.set()
                await may_greet.wait()
                writer.write(b"+OLD\r\n" * data.count(b"*"))
        writer.close()

    old = await asyncio.start_server(slow, "127.0.0.1", 0)
    line = Connection(client_of(f"redis://127.0.0.1:{old.sockets[0].getsockname()[1]}"), SECONDS)
    first = asyncio.create_task(line.ask("ECHO", "a"))
    await asked.wait()
    line.move("127.0.0.1", real.port)
    may_greet.set()
    assert await outcomes(first, line.ask("ECHO", "b")) == [b"a", b"b"]
    await line.aclose()
    old.close()


async def test_closing_a_line_while_it_connects_ends_its_calls(scripted_server: ScriptedServer) -> None:
    line = Connection(client_of(scripted_server.url), SECONDS)
    call = asyncio.create_task(line.ask("ECHO", "a"))
    await asyncio.sleep(0)
    await line.aclose()
    assert [type(found) for found in await outcomes(call)] == [RedisConnectionError]


async def test_a_malformed_error_is_an_error_of_the_connection(scripted_server: ScriptedServer) -> None:
    scripted_server.manners = [lambda words: b"-MOVED\r\n" if words[0] == b"ECHO" else plainly(words)]
    line = Connection(client_of(scripted_server.url), SECONDS)
    assert [type(found) for found in await outcomes(line.ask("ECHO", "a"))] == [RedisConnectionError]
    await line.aclose()
