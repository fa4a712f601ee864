"""One synchronous call per record: what comes back is a line that the provider's own format reads, whatever happens."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from infra.local.simulator.server import SimulatorServer
from tallybatch import wiring
from tallybatch.domain.errors import AnswerUnknown, Permanent, ProviderRefused, ProviderUnavailable, QuotaRefused
from tallybatch.domain.outcomes import OutcomeClass
from tallybatch.domain.spec_file import parse_spec
from tallybatch.ports import OnDemand, ProviderFormat
from tests.support.films import scenario, spec
from tests.support.loopback import unused_port
from tests.support.on_demand import lane

RECORD_ID = "0f" * 16
SECRET = "sk-proj-verysecret"
PROMPT = "Title: Film-QUETZAL."
EMBEDDINGS = {
    "openai": ("text-embedding-3-small", "/v1/embeddings"),
    "bedrock": ("amazon.titan-embed-text-v2:0", "InvokeModel"),
    "gemini": ("gemini-embedding-001", "embedContent"),
}
OTHERS = [
    ("openai", "gpt-5-mini-2025-08-07", "/v1/chat/completions"),
    ("bedrock", "us.anthropic.claude-haiku-4-5-20251001-v1:0", "InvokeModel"),
    ("bedrock", "amazon.nova-lite-v1:0", "InvokeModel"),
]
PROVIDERS = ("openai", "bedrock", "gemini")


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorServer]:
    with SimulatorServer("calm", clock_scale=0) as server:
        yield server


class Call:
    """One record of one spec, sent through a lane."""

    def __init__(self, provider: str, model: str = "", endpoint: str = "", **changed: Any) -> None:
        chosen = {"model": model, "endpoint": endpoint} if model else {}
        self.spec = parse_spec(spec(provider, **chosen, **changed).encode(), file="spec.yaml")
        self.format: ProviderFormat = wiring.formats(self.spec)
        self.line = self.format.request_line(RECORD_ID, system="You label films.", user=PROMPT)

    def by(self, lane: OnDemand) -> bytes:
        return lane.answer(self.line, endpoint=self.spec.endpoint, model=self.spec.model_resolved)


@pytest.mark.parametrize("target", [(name, "", "") for name in PROVIDERS] + OTHERS, ids=lambda target: "-".join(target))
def test_given_a_request_when_it_is_answered_then_the_format_reads_the_line_and_the_bill_is_its_usage(
    simulator: SimulatorServer, target: tuple[str, str, str]
) -> None:
    simulator.control.reset()
    scenario(simulator.control)
    call = Call(*target)

    line = call.by(lane(target[0], simulator, key=SECRET))

    assert b"\n" not in line
    result = call.format.parse(line)
    assert (result.record_id, result.outcome) == (RECORD_ID, OutcomeClass.SUCCEEDED)
    assert result.answer
    journal = simulator.control.journal()
    billed = journal["tokens_per_lane"]["on_demand"]
    assert (result.usage.input, result.usage.output) == (billed["input"], billed["output"])
    assert billed["input"] > 0
    assert not journal["creates"]
    assert not any(journal["tokens_per_lane"]["batch"].values())


@pytest.mark.parametrize("provider", PROVIDERS)
def test_given_an_embedding_when_it_is_answered_then_it_is_a_vector(simulator: SimulatorServer, provider: str) -> None:
    simulator.control.reset()
    scenario(simulator.control)
    model, endpoint = EMBEDDINGS[provider]
    text = f"{{name: e, provider: {provider}, model: '{model}', endpoint: {endpoint}, prompt: {{user: '{{{{ t }}}}'}}}}"
    made = parse_spec(text.encode(), file="e.yaml")
    provider_format = wiring.formats(made)
    line = provider_format.request_line(RECORD_ID, system="", user=PROMPT)

    answer = lane(provider, simulator, key=SECRET).answer(line, endpoint=made.endpoint, model=made.model_resolved)

    result = provider_format.parse(answer)
    assert (result.record_id, result.outcome) == (RECORD_ID, OutcomeClass.SUCCEEDED)
    assert result.answer is not None
    assert result.answer.startswith("[")


FAULTS = {
    "error_400": OutcomeClass.PERMANENT,
    "refusal": OutcomeClass.REFUSED,
    "length": OutcomeClass.TRUNCATED,
    "u2028": OutcomeClass.SUCCEEDED,
}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("fault", FAULTS)
def test_given_what_is_the_records_own_fate_when_answered_then_it_is_a_line_of_its_class(
    simulator: SimulatorServer, provider: str, fault: str
) -> None:
    simulator.control.reset()
    scenario(simulator.control, records=[{"fault": fault}])
    call = Call(provider)

    result = call.format.parse(call.by(lane(provider, simulator, key=SECRET)))

    assert (result.record_id, result.outcome) == (RECORD_ID, FAULTS[fault])


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ({"records": [{"fault": "error_429"}]}, QuotaRefused),
        ({"calls": [{"on": "sync", "fault": "status:429", "retry_after_s": 7}]}, QuotaRefused),
        ({"records": [{"fault": "error_500"}]}, AnswerUnknown),
        ({"records": [{"fault": "error_503"}]}, AnswerUnknown),
        ({"calls": [{"on": "sync", "fault": "reply_500_after"}]}, AnswerUnknown),
        ({"calls": [{"on": "sync", "fault": "lost_reply"}]}, AnswerUnknown),
        ({"calls": [{"on": "sync", "fault": "cut_body"}]}, AnswerUnknown),
        ({"calls": [{"on": "sync", "fault": "drop_before"}]}, AnswerUnknown),
        ({"calls": [{"on": "sync", "fault": "late_reply_s:1.5"}]}, AnswerUnknown),
        ({"calls": [{"on": "sync", "fault": "status:403"}]}, ProviderRefused),
        ({"calls": [{"on": "sync", "fault": "status:404"}]}, ProviderRefused),
        ({"models": {"refuse": ["*"]}}, ProviderRefused),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value)[:60],
)
def test_given_no_answer_that_counts_when_called_then_the_error_says_what_may_have_been_paid(
    simulator: SimulatorServer, provider: str, keys: dict[str, Any], error: type[Exception]
) -> None:
    simulator.control.reset()
    scenario(simulator.control, **keys)
    call = Call(provider)

    with pytest.raises(error) as raised:
        call.by(lane(provider, simulator, key=SECRET, timeout_s=1))

    assert simulator.control.journal()["calls"] == {f"{provider}.sync": 1}, "sent once"
    told = "".join(traceback.format_exception(raised.value))
    assert SECRET not in told
    assert "QUETZAL" not in told
    if isinstance(raised.value, AnswerUnknown) and raised.value.reply:
        assert call.format.parse(raised.value.reply).outcome is OutcomeClass.RETRYABLE
    if keys.get("calls", [{}])[0].get("retry_after_s") and isinstance(raised.value, QuotaRefused):
        assert raised.value.retry_after_s == 7


@pytest.mark.parametrize("provider", PROVIDERS)
def test_given_nobody_there_when_called_then_nothing_left(
    simulator: SimulatorServer, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    for name in ("openai_base_url", "gemini_base_url", "bedrock_endpoint_url"):
        monkeypatch.setattr(simulator, name, f"http://127.0.0.1:{unused_port()}")
    with pytest.raises(ProviderUnavailable):
        Call(provider).by(lane(provider, simulator, key=SECRET, timeout_s=1))


@pytest.mark.parametrize("provider", ["openai", "gemini"])
def test_given_an_empty_key_when_called_then_nothing_is_sent(simulator: SimulatorServer, provider: str) -> None:
    simulator.control.reset()
    with pytest.raises(Permanent, match="key is empty"):
        Call(provider).by(lane(provider, simulator, key=" "))
    assert not simulator.control.journal()["calls"]
