"""What engines say of their speed: answers, metrics and logs of builds old and new, and lines that lie."""

from __future__ import annotations

import pytest

from advisor.engines.timings import Metrics, SpeedLog, SpeedReader, Timing, parse_metrics, timing_of

# xllamacpp 2026.10.11549, gemma-3-270m on two cores: 12 tokens are 11 steps, whatever the rate divides by
ANSWER = {
    "cache_n": 4, "prompt_n": 100, "prompt_ms": 481.37, "prompt_per_token_ms": 4.8137,
    "prompt_per_second": 207.74040758667968, "predicted_n": 12, "predicted_ms": 253.186,
    "predicted_per_token_ms": 23.016909090909092, "predicted_per_second": 43.44632009668781,
}  # fmt: skip


def test_an_answer():
    timing = timing_of({"timings": ANSWER})
    assert timing == Timing(100, 0.48137, 11, 0.253186, 4 + 100 + 6)
    assert timing.steps / timing.seconds == pytest.approx(ANSWER["predicted_per_second"])


@pytest.mark.parametrize(
    "answer",
    [
        None, [], "x", {}, {"timings": None}, {"timings": []}, {"timings": {**ANSWER, "prompt_n": "1"}},
        {"timings": {**ANSWER, "predicted_n": -1}}, {"timings": {**ANSWER, "predicted_n": True}},
        {"timings": {**ANSWER, "predicted_ms": float("nan")}}, {"timings": {**ANSWER, "predicted_ms": 1e300}},
        {"timings": {key: value for key, value in ANSWER.items() if key != "prompt_ms"}},
        {"timings": {**ANSWER, "predicted_ms": 1e-300}}, {"timings": {**ANSWER, "prompt_ms": 1e-300}},
        {"timings": {**ANSWER, "predicted_n": 1 << 30}}, {"timings": {**ANSWER, "prompt_ms": 9e11}},
        {"timings": {**ANSWER, "draft_n": 5, "draft_n_accepted": 3}},  # several tokens a step
    ],
)  # fmt: skip
def test_no_answer(answer):
    assert timing_of(answer) is None


METRICS = """# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed, excluding cached tokens
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 1500
llamacpp:prompt_seconds_total 3
llamacpp:tokens_predicted_total 4000
llamacpp:tokens_predicted_seconds_total 100
llamacpp:n_decode_total 4100
llamacpp:n_tokens_max 1234
llamacpp:prompt_tokens_seconds 480.5
llamacpp:predicted_tokens_seconds 39.5
llamacpp:n_busy_slots_per_decode 1
"""


def test_metrics():
    assert parse_metrics(METRICS) == Metrics(40.0, 4000, 1234, 1.0)


def test_metrics_of_a_server_that_has_done_nothing():
    idle = "llamacpp:tokens_predicted_total 0\nllamacpp:tokens_predicted_seconds_total 0\n"
    assert parse_metrics(idle) == Metrics(None, 0, None, None)


@pytest.mark.parametrize(
    "text",
    ["", "hello", "<html></html>", "llamacpp: 1", "other:tokens_predicted_total 5", "llamacpp:tokens_predicted_total x",
     "llamacpp:tokens_predicted_total 1e300", "llamacpp:tokens_predicted_total -5"],
)  # fmt: skip
def test_no_metrics(text):
    found = parse_metrics(text)
    assert found is None or found.predicted_tokens == 0


def test_metrics_that_lie():
    found = parse_metrics(METRICS.replace("seconds_total 100", "seconds_total 1e-300").replace("1234", "1e99"))
    assert found is not None
    assert (found.decode_tokens_per_s, found.largest_depth) == (None, None)


def read(text: str) -> SpeedLog:
    reader = SpeedReader()
    assert list(reader.watch(text.split("\n"))) == text.split("\n")
    return reader.log


NEW = """\
0.00.006.137 I srv    load_model: loading model '/m/gemma.gguf'
0.00.812.412 I system info: n_threads = 2, n_threads_batch = 2, total_threads = 4
0.00.865.894 I slot launch_slot_: id  1 | task 0 | processing task, is_child = 0
0.01.600.498 I slot print_timing: id  1 | task 0 | prompt eval time =     481.37 ms /   100 tokens (    4.81 ms per token,   207.74 tokens per second)
0.01.600.506 I slot print_timing: id  1 | task 0 |        eval time =     253.19 ms /    12 tokens (   23.02 ms per token,    43.45 tokens per second)
0.01.600.506 I slot print_timing: id  1 | task 0 |       total time =     734.56 ms /   112 tokens
0.01.600.508 I slot print_timing: id  1 | task 0 |    graphs reused =         10
0.01.600.551 I slot      release: id  1 | task 0 | stop processing: n_tokens = 1111, truncated = 0
"""  # noqa: E501
# builds of 2024 and 2025: the slot stands in a line of its own
OLD = """\
slot launch_slot_: id  0 | task 7 | processing task
slot print_timing: id  0 | task 7 |
prompt eval time =     200.00 ms /    50 tokens (    4.00 ms per token,   250.00 tokens per second)
       eval time =    1000.00 ms /    21 tokens (   47.62 ms per token,    21.00 tokens per second)
      total time =    1200.00 ms /    71 tokens
slot      release: id  0 | task 7 | stop processing: n_past = 371, truncated = 0
"""
CLI = """\
llama_perf_context_print:        load time =     500.00 ms
llama_perf_context_print: prompt eval time =     100.00 ms /    10 tokens (   10.00 ms per token,   100.00 tokens per second)
llama_perf_context_print:        eval time =    2000.00 ms /    40 runs   (   50.00 ms per token,    20.00 tokens per second)
llama_perf_context_print:       total time =    2100.00 ms /    50 tokens
"""  # noqa: E501


def test_a_server_of_now():
    log = read(NEW)
    assert log.timings == (Timing(100, 0.48137, 11, pytest.approx(0.25319), 1111 - 5),)
    assert (log.logical_cores, log.path, log.n_disturbed) == (4, "/m/gemma.gguf", 0)


def test_a_server_of_before():
    assert read(OLD).timings == (Timing(50, 0.2, 20, 1.0, 371 - 10),)


def test_a_program_that_answers_once():
    assert read(CLI).timings == (Timing(10, 0.1, 40, 2.0, 10 + 20),)
    assert len(read(CLI + CLI).timings) == 2


def test_requests_that_share_the_engine_teach_nothing():
    together = (
        "slot launch_slot_: id  0 | task 1 | processing task\nslot launch_slot_: id  1 | task 2 | processing task\n"
        "slot print_timing: id  0 | task 1 | eval time = 100.00 ms / 10 tokens\n"
        "slot release: id  0 | task 1 | stop processing: n_tokens = 20, truncated = 0\n"
        "slot print_timing: id  1 | task 2 | eval time = 100.00 ms / 10 tokens\n"
        "slot release: id  1 | task 2 | stop processing: n_tokens = 20, truncated = 0\n"
    )
    log = read(together + NEW)
    assert log.n_disturbed == 2
    assert len(log.timings) == 1


def test_speculative_decoding_teaches_nothing():
    drafted = NEW.replace(
        "    graphs reused",
        "draft acceptance = 0.50000 (    5 accepted /    10 generated)\nslot print_timing: id  1 | task 0 | reused",
    )
    assert read(drafted) == SpeedLog((), 1, 4, "/m/gemma.gguf")


def test_another_model_starts_anew():
    log = read(NEW + NEW.replace("gemma.gguf", "other.gguf").replace("253.19", "500.00"))
    assert log.path == "/m/other.gguf"
    assert [timing.seconds for timing in log.timings] == [0.5]
    assert len(read(NEW + NEW).timings) == 2


@pytest.mark.parametrize(
    "text",
    [
        "", "eval time", "eval time = ms / tokens", "eval time = 1.1.1 ms / 5 tokens", "eval time = . ms / 5 tokens",
        "eval time = .. ms / 5 runs",
        "eval time = 9 ms / 0 tokens",
        "eval time = 99999999999999999999 ms / 9 tokens", "eval time = 5 ms / 99999999999 tokens",
        "slot launch_slot_: id 99999999999999 | task 1 | processing task", "x" * 5000,
        "slot release: id 0 | task 1 | stop processing: n_tokens = 99999999999999999999999999999999999999999999999",
        "eval time = 0.00000000001 ms / 50 tokens", "eval time = 99999999999.0 ms / 1 runs",
        "system info: n_threads = 99999999999, total_threads = 9999999999", "loading model '", "loading model ''",
        "slot print_timing: id 0 | task 1 | eval time = 5 ms / 7 tokens",  # of a task that nobody began
    ],
)  # fmt: skip
def test_lines_that_lie(text):
    assert read(text).timings == ()


def test_a_log_without_end():
    reader = SpeedReader()
    for number in range(3000):
        reader.line(f"slot launch_slot_: id  {number} | task {number} | processing task")
    assert len(reader.tasks) <= 1000
