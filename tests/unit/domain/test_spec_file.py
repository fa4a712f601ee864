"""Reading a spec: what is refused, at which line, under which key, with which advice."""

from pathlib import Path

import pytest

from tallybatch.domain.errors import BadInput, Problem
from tallybatch.domain.spec_file import parse_spec
from tests.support.spec_texts import BASE, problems_of, spec_of, the_problem

SPECS = Path(__file__).parents[2] / "data" / "specs"


def test_given_only_the_required_keys_when_read_then_each_other_key_has_its_default() -> None:
    spec = spec_of(BASE)

    assert (spec.endpoint, spec.purpose, spec.aliases) == ("/v1/responses", "film-genre", {})
    assert spec.input.model_dump() == {
        "format": "records",
        "key": "id",
        "source_version": None,
        "fields": ("title",),
        "data_class": "internal",
        "redact": (),
        "on_bad_line": "reject",
    }
    assert spec.prompt is not None
    assert (spec.prompt.version, spec.prompt.system) == ("v1", "")
    assert (spec.output.schema_version, spec.output.compression, spec.output.schema_) == ("text", "none", None)
    assert (spec.retry.max_attempts, spec.retry.backoff.total_seconds(), spec.retry.retry_unqualified) == (3, 300, True)
    assert (spec.shards.max_records, spec.shards.max_bytes, spec.shards.max_parallel) == (10_000, 100_000_000, 4)
    assert spec.limits.deadline.total_seconds() == 48 * 3600
    kept = spec.retention
    assert [kept.inbox.days, kept.working.days, kept.raw.days, kept.results.days] == [30, 30, 90, 365]


@pytest.mark.parametrize("path", sorted(SPECS.glob("*.yaml")), ids=lambda path: path.stem)
def test_given_an_example_when_read_then_it_is_accepted(path: Path) -> None:
    assert parse_spec(path.read_bytes(), file=path.name).name == path.stem


@pytest.mark.parametrize("missing", ["name", "provider", "model"])
def test_given_a_required_key_is_missing_when_read_then_that_key_is_named(missing: str) -> None:
    text = "".join(line for line in BASE.splitlines(keepends=True) if not line.startswith(missing))

    assert the_problem(text) == Problem("is required", 1, missing, "missing")


@pytest.mark.parametrize("prompt", ["", "prompt: null\n"])
def test_given_no_prompt_and_no_native_format_when_read_then_prompt_user_is_required(prompt: str) -> None:
    problem = the_problem("name: a\nprovider: openai\nmodel: m\n" + prompt)

    assert (problem.key, problem.code) == ("prompt.user", "missing")


CASES: list[tuple[str, int, str, str]] = [
    # text after BASE, line, key, part of the reason
    ("shard: {}", 5, "shard", "unknown key 'shard'; did you mean 'shards'?"),
    ("shards:\n  max_record: 1", 6, "shards.max_record", "did you mean 'max_records'?"),
    ("deadline: 48h", 5, "deadline", "it belongs under 'limits'"),
    ("temperature: 0", 5, "temperature", "it belongs under 'generation'"),
    ("owner: {boss: x}", 5, "owner.boss", "unknown key 'boss'; valid: submitted_by, cost_center"),
    ("generation: {temprature: 0}", 5, "generation.temprature", "did you mean 'temperature'?"),
    ("purpose: a b", 5, "purpose", "'a b' is not allowed; use letters, digits"),
    ("purpose: -a", 5, "purpose", "beginning with a letter or digit"),
    ("endpoint: /v1/response", 5, "endpoint", "did you mean '/v1/responses'?"),
    ("aliases: {a: 1}", 5, "aliases.a", 'quote it: "1"'),
    ("aliases: {a: m-latest}", 5, "aliases.a", "moves to another model without notice"),
    ("aliases: {a: b, b: c}", 5, "aliases.a", "'b' is an alias itself"),
    ("aliases: {'a b': c}", 5, "aliases.a b", "'a b' is not allowed"),
    ("input: {format: record}", 5, "input.format", "did you mean 'records'?"),
    ("input: {key: 7}", 5, "input.key", 'must be text, but YAML reads 7 as the number 7; quote it: "7"'),
    ("input: {key: ''}", 5, "input.key", "must not be empty"),
    ("input: {key: /a~2}", 5, "input.key", "is not a JSON pointer"),
    ("input: {source_version: /a~}", 5, "input.source_version", "is not a JSON pointer"),
    ("input: {fields: title}", 5, "input.fields", "must be a list, not 'title'"),
    ("input: {fields: [title, 1]}", 5, "input.fields[1]", "must be text"),
    ("input:\n  fields:\n    - title\n    - title", 8, "input.fields[1]", "'title' is listed twice"),
    ("input: {fields: [titel]}", 4, "prompt.user", "uses 'title', which is not in input.fields; did you mean 'titel'?"),
    ("input: {data_class: secret}", 5, "input.data_class", "none of public, internal, confidential, restricted"),
    ("input: {on_bad_line: skip}", 5, "input.on_bad_line", "none of reject, quarantine"),
    ("generation: 5", 5, "generation", "must be a mapping, not 5"),
    ("generation: {max_output_tokens: 0}", 5, "generation.max_output_tokens", "must be at least 1, not 0"),
    ("generation: {max_output_tokens: 1.5}", 5, "generation.max_output_tokens", "must be a whole number, not 1.5"),
    ("generation: {max_output_tokens: '60'}", 5, "generation.max_output_tokens", "must be a whole number, not '60'"),
    ("generation: {temperature: 2.1}", 5, "generation.temperature", "must be at most 2.0, not 2.1"),
    ("generation: {temperature: low}", 5, "generation.temperature", "must be a number, not 'low'"),
    ("generation: {top_p: -0.1}", 5, "generation.top_p", "must be at least 0.0"),
    ("generation: {reasoning_effort: hihg}", 5, "generation.reasoning_effort", "did you mean 'high'?"),
    ("generation: {seed: 1}", 5, "generation.seed", "the endpoint /v1/responses has no such parameter"),
    ("generation: {stop: x}", 5, "generation.stop", "has no such parameter"),
    ("generation: {dimensions: 3}", 5, "generation.dimensions", "has no such parameter"),
    ("generation: {max_tokens: 3}", 5, "generation.max_tokens", "write `max_output_tokens`"),
    ("generation: {n: 3}", 5, "generation.n", "exactly one answer"),
    ("output: {schema_version: 1.0}", 5, "output.schema_version", 'quote it: "1.0"'),
    ("output: {schema_version: a/b}", 5, "output.schema_version", "is not allowed"),
    ("output: {compression: zip}", 5, "output.compression", "did you mean 'gzip'?"),
    ("output: {schema: true}", 5, "output.schema", "must be a mapping, not true"),
    ("output: {schema: {}}", 5, "output.schema", "must describe an object"),
    ("output: {schema: {type: array}}", 5, "output.schema", "must describe an object"),
    ("retry: {max_attempts: 0}", 5, "retry.max_attempts", "must be at least 1"),
    ("retry: {max_attempts: 11}", 5, "retry.max_attempts", "must be at most 10"),
    ("retry: {max_attempts: yes}", 5, "retry.max_attempts", "must be a whole number, not true"),
    ("retry: {backoff: 300}", 5, "retry.backoff", "300 is not a duration; write a number and a unit"),
    ("retry: {backoff: 25h}", 5, "retry.backoff", "must be between 0s and 24h, not 25h"),
    ("retry: {retry_unqualified: maybe}", 5, "retry.retry_unqualified", "must be true or false, not 'maybe'"),
    ("shards: {max_records: 50001}", 5, "shards.max_records", "must be at most 50000"),
    ("shards: {max_bytes: 201MB}", 5, "shards.max_bytes", "must be at most 200MB, which is what openai takes"),
    ("shards: {max_bytes: 100 megs}", 5, "shards.max_bytes", "is not a size"),
    ("shards: {max_parallel: 1001}", 5, "shards.max_parallel", "must be at most 1000"),
    ("shards: []", 5, "shards", "must be a mapping, not a list"),
    ("limits: {deadline: 8d}", 5, "limits.deadline", "must be between 1m and 7d"),
    (
        "limits: {deadline: 3d}\nretention: {working: 2d}",
        6,
        "retention.working",
        "48h is shorter than limits.deadline, 3d",
    ),
    ("retention: {raw: 1d}", 5, "retention.raw", "24h is shorter than limits.deadline, 48h"),
    ("retention: {results: 36h}", 5, "retention.results", "must be a multiple of 1d"),
    ("retention: {inbox: 4000d}", 5, "retention.inbox", "must be between 1d and 3650d"),
    ("owner: {cost_center: 4711}", 5, "owner.cost_center", 'quote it: "4711"'),
    ("owner:", 5, "owner", "has no value"),
    ("retry: {backoff: }", 5, "retry.backoff", "has no value"),
]


@pytest.mark.parametrize(("text", "line", "key", "reason"), CASES, ids=[case[0] for case in CASES])
def test_given_one_wrong_key_when_read_then_the_error_names_line_key_and_advice(
    text: str, line: int, key: str, reason: str
) -> None:
    problem = the_problem(BASE + text + "\n")

    assert (problem.line, problem.key) == (line, key)
    assert reason in problem.reason


@pytest.mark.parametrize(
    ("line", "key", "reason"),
    [
        ("name: no", "name", 'must be text, but YAML reads no as false; quote it: "no"'),
        ("name: 1.0", "name", 'quote it: "1.0"'),
        ("name: a b", "name", "is not allowed"),
        ("name: " + "a" * 65, "name", "at most 64"),
        ("provider: openia", "provider", "'openia' is none of openai, bedrock, gemini; did you mean 'openai'?"),
        ("model: gpt-latest", "model", "name an exact version, or list it under `aliases`"),
        ("model: Latest", "model", "moves to another model"),
        ("model: a b", "model", "is not allowed"),
        ("prompt: hello", "prompt", "must be a mapping, not 'hello'"),
        ("prompt: {}", "prompt.user", "is required"),
        ("prompt: {user: ''}", "prompt.user", "must not be empty"),
        ("prompt: {user: hello}", "prompt.user", "uses no field of the record"),
        ("prompt: {user: '{{ a'}", "prompt.user", "template syntax"),
        ("prompt: {user: '{{ a }}', system: 'on {{ a }}'}", "prompt.system", "move it to prompt.user"),
        ("prompt: {user: '{{ a }}', version: a@b}", "prompt.version", "is not allowed"),
    ],
)
def test_given_a_required_key_is_wrong_when_read_then_only_that_is_reported(line: str, key: str, reason: str) -> None:
    lines = BASE.splitlines()
    at = next(i for i, old in enumerate(lines) if old.split(":")[0] == line.split(":")[0])
    lines[at] = line

    problem = the_problem("\n".join(lines))

    assert (problem.line, problem.key) == (at + 1, key)
    assert reason in problem.reason


def test_given_many_mistakes_when_read_then_all_are_reported_at_once_in_the_order_of_lines() -> None:
    text = """\
name: a b
provider: opena
modle: m
input: {fields: [x, x], keys: id}
prompt:
  version: 1.0
  user: |
    {{ x }}
    {{ y }}
generation: {temperature: 3}
output: {schema: {type: objec}}
retention: {raw: 1h}
fallback: [{provider: bedrock}]
"""
    problems = problems_of(text)

    assert [(problem.line, problem.key) for problem in problems] == [
        (1, "model"),
        (1, "name"),
        (2, "provider"),
        (3, "modle"),
        (4, "input.fields[1]"),
        (4, "input.keys"),
        (6, "prompt.version"),
        (9, "prompt.user"),
        (10, "generation.temperature"),
        (11, "output.schema.type"),
        (12, "retention.raw"),
        (13, "fallback[0].model"),
    ]


def test_given_a_refused_spec_when_the_error_is_shown_then_it_says_file_what_and_what_to_do() -> None:
    with pytest.raises(BadInput) as caught:
        parse_spec((BASE + "shard: 1\n").encode(), file="specs/acme/film.yaml")

    assert str(caught.value) == (
        "specs/acme/film.yaml: the spec is refused. line 5: shard: unknown key 'shard'; did you mean 'shards'?. "
        "correct the file and check it again with `tallybatch spec check`"
    )


HEAD = "name: a\nprovider: openai\nmodel: m\nprompt:\n"


@pytest.mark.parametrize(
    ("prompt", "line"),
    [
        ("  user: |\n    Title: {{ title }}\n\n    {{ oops\n", 8),
        ("  user: |-\n    {{ title }}\n    {{ title | nofilter }}\n", 7),
        ("  user:\n    |\n    {{ title }}\n    {% if %}\n", 8),
        ("  user: '{{ title }} {{ oops'\n", 5),
        ('  user: "{{ title }}\\n{% endif %}"\n', 5),
    ],
)
def test_given_a_broken_template_when_read_then_the_line_is_the_one_in_the_file(prompt: str, line: int) -> None:
    problem = the_problem(HEAD + prompt)

    assert (problem.line, problem.key, problem.code) == (line, "prompt.user", "template")


def test_given_fields_that_lack_a_variable_when_read_then_the_line_of_its_use_is_named() -> None:
    text = HEAD + "  user: |\n    {{ title }}\n    {{ director }} {{ year }}\ninput: {fields: [title, yaer]}\n"

    assert [(p.line, p.reason) for p in problems_of(text)] == [
        (7, "uses 'director', which is not in input.fields"),
        (7, "uses 'year', which is not in input.fields; did you mean 'yaer'?"),
    ]


def test_given_fields_beyond_the_template_when_read_then_they_stay() -> None:
    assert spec_of(BASE + "input: {fields: [title, year]}").input.fields == ("title", "year")


def test_given_a_template_with_loops_and_sets_when_read_then_only_free_variables_are_fields() -> None:
    user = "{% set n = 1 %}{% for x in xs %}{{ loop.index }}{{ x.name }}{{ n }}{{ range(3) }}{% endfor %}{{ a.b }}"

    assert spec_of(HEAD + f"  user: '{user}'\n").input.fields == ("a", "xs")


@pytest.mark.parametrize("key", ["id", "/meta/id", "/a~1b/~0", "film id"])
def test_given_a_field_or_a_pointer_as_key_when_read_then_it_is_kept(key: str) -> None:
    spec = spec_of(BASE + f"input: {{key: '{key}', source_version: '{key}'}}")

    assert (spec.input.key, spec.input.source_version) == (key, key)


def test_given_an_alias_when_read_then_it_stands_for_its_exact_version() -> None:
    text = BASE.replace("m-1", "gpt-latest") + "aliases: {gpt-latest: gpt-5-mini-2025-08-07}\n"

    assert spec_of(text).model_resolved == "gpt-5-mini-2025-08-07"


@pytest.mark.parametrize("value", ["yes", "on", "true"])
def test_given_a_word_for_true_where_true_is_asked_for_when_read_then_it_counts(value: str) -> None:
    assert spec_of(BASE + f"retry: {{retry_unqualified: {value}}}").retry.retry_unqualified is True


@pytest.mark.parametrize(
    ("schema", "key", "reason"),
    [
        ("{type: object, properties: {a: {minimum: x}}}", ".properties.a.minimum", '"x" is not of type "number"'),
        ("{type: object, properties: {a: {type: strin}}}", ".properties.a.type", "did you mean 'string'?"),
        ("{type: object, properties: {a: {pattern: '('}}}", ".properties.a.pattern", "regex"),
        ("{type: object, properties: {a: {enum: [yes]}}}", ".properties.a.enum[0]", 'quote it: "yes", or write true'),
        ("{type: object, $ref: 'https://example.com/x'}", "", "Retrieval is disabled"),
        ("{type: object, $ref: '#/$defs/x'}", "", "does not exist"),
        ("{type: object, $schema: 'https://example.com/x'}", "", "not JSON Schema"),
        ("{type: object, required: [99999999999999999999]}", ".required[0]", "does not fit into 64 bits"),
        ("{type: object, maximum: .inf}", ".maximum", "not a number that JSON can hold"),
        ("{type: object, default: 2024-01-01}", ".default", 'as a date; quote it: "2024-01-01"'),
    ],
)
def test_given_an_output_schema_that_cannot_work_when_read_then_its_place_is_named(
    schema: str, key: str, reason: str
) -> None:
    problem = the_problem(BASE + f"output:\n  schema: {schema}\n")

    assert (problem.line, problem.key) == (6, "output.schema" + key)
    assert reason in problem.reason


def test_given_two_faults_in_an_output_schema_when_read_then_each_has_its_own_line() -> None:
    schema = "    type: object\n    properties:\n      a: {type: strin}\n      b: {minimum: x}\n"

    assert [p.line for p in problems_of(BASE + "output:\n  schema:\n" + schema)] == [9, 10]


NATIVE = "name: n\nprovider: openai\nmodel: m\ninput: {format: openai}\n"


def test_given_a_native_file_when_read_then_its_own_id_is_the_key_and_no_prompt_is_needed() -> None:
    spec = spec_of(NATIVE)

    assert spec.is_native
    assert (spec.input.key, spec.input.fields, spec.prompt) == ("custom_id", (), None)


@pytest.mark.parametrize(
    ("extra", "key"),
    [
        ("prompt: {user: '{{ a }}'}", "prompt"),
        ("generation: {temperature: 0}", "generation.temperature"),
    ],
)
def test_given_a_native_file_when_the_spec_says_what_its_lines_say_then_it_is_refused(extra: str, key: str) -> None:
    problem = the_problem(NATIVE + extra)

    assert (problem.line, problem.key, problem.code) == (5, key, "native")


@pytest.mark.parametrize(("key", "value"), [("key", "id"), ("fields", "[a]"), ("source_version", "v")])
def test_given_a_native_file_when_input_keys_would_be_ignored_then_they_are_refused(key: str, value: str) -> None:
    problem = the_problem(NATIVE.replace("openai}", f"openai, {key}: {value}}}"))

    assert (problem.line, problem.key, problem.code) == (4, f"input.{key}", "native")


EMBED = "name: e\nprovider: openai\nmodel: m\nendpoint: /v1/embeddings\n"


@pytest.mark.parametrize(
    ("extra", "key"),
    [
        ("prompt: {user: '{{ a }}', system: s}", "prompt.system"),
        ("prompt: {user: '{{ a }}'}\noutput: {schema: {type: object}}", "output.schema"),
        ("prompt: {user: '{{ a }}'}\ngeneration: {temperature: 0}", "generation.temperature"),
    ],
)
def test_given_embeddings_when_the_spec_has_what_they_lack_then_it_is_refused(extra: str, key: str) -> None:
    assert the_problem(EMBED + extra).key == key
