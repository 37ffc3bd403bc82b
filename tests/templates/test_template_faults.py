"""Published faults of tokenisation, on real chat templates. Faults 2, 3, 19, 20, 61."""

from __future__ import annotations

import subprocess
import sys

import pytest
from families import FAMILIES, template_of

from groupwise.types import Message, Prompt

NAMES = sorted(FAMILIES)
USER: Message = {"role": "user", "content": "What is 17 times 23?"}
CHAT = Prompt("chat", messages=(USER,))
RAW = Prompt("raw", text="17 times 23 is")


@pytest.mark.parametrize("name", NAMES)
def test_fault_2_end_markers_in_a_prompt_are_tokens_like_any_other(name: str) -> None:
    """A chat of several turns holds its end marker, which is a stop id and often the pad id."""
    family, template = FAMILIES[name], template_of(name)
    answer: Message = {"role": "assistant", "content": "391"}
    end = template.tokenizer.token_to_id(family.end)
    assert end in template.stop_ids
    ids = template.encode_prompt(Prompt("p", messages=(USER, answer, USER, answer, USER)))
    text = template.render((USER, answer, USER, answer, USER))
    assert ids.count(end) == text.count(family.end) >= 2
    assert template.decode(ids) == text


@pytest.mark.parametrize("name", NAMES)
def test_fault_3_what_was_sampled_is_never_encoded_again(name: str) -> None:
    """Ids that no encoder would give stay as they are through a second turn."""
    template = template_of(name)
    odd = tuple(template.encode(letter)[0] for letter in "The result is 391.")
    assert template.encode("The result is 391.") != odd
    follow = template.continuation(odd, [{"role": "user", "content": "Sure?"}])
    context = template.encode_prompt(CHAT) + odd + follow
    start = len(template.encode_prompt(CHAT))
    assert context[start : start + len(odd)] == odd
    assert template.decode_completion(odd) == "The result is 391."


@pytest.mark.parametrize("name", NAMES)
def test_fault_19_only_end_pad_and_bos_leave_the_text_of_a_completion(name: str) -> None:
    family, template = FAMILIES[name], template_of(name)
    dropped = {family.end, family.eos} | ({family.bos} if family.bos else set())
    kept = [marker for marker in family.markers if marker not in dropped]
    ids = [template.tokenizer.token_to_id(marker) for marker in (*kept, *sorted(dropped))]
    assert template.decode_completion(ids) == "".join(kept)


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_fault_20_one_bos_wherever_tokenizer_or_template_defines_it(name: str, adds: bool) -> None:
    family, template = FAMILIES[name], template_of(name, adds)
    if family.bos is None:
        assert template.bos_id is None
        return
    writes = "bos_token" in family.text
    for prompt in (CHAT, RAW):
        ids = template.encode_prompt(prompt)
        if family.bos == "<|im_start|>" and not adds:  # a message's first marker; no BOS at all
            assert ids.count(template.bos_id) == (3 if prompt is CHAT else 0)
            continue
        expected = 1 if adds or writes else 0
        assert (ids[0] == template.bos_id, ids[:2].count(template.bos_id)) == (
            bool(expected),
            expected,
        )


def test_a_thinking_tag_that_the_template_opens_is_known() -> None:
    prefills = {name: template_of(name).prefill for name in NAMES}
    assert {name for name, prefill in prefills.items() if prefill} == {"deepseek_r1_distill"}
    assert prefills["deepseek_r1_distill"] == "<think>\n"
    closed = template_of("qwen3").with_variables({"enable_thinking": False})
    assert closed.render((USER,)).endswith("<think>\n\n</think>\n\n")
    assert closed.prefill == ""


def test_a_date_in_a_prompt_is_the_one_that_was_fixed() -> None:
    assert {name for name in NAMES if template_of(name).reads_clock} == {"llama3_2"}
    assert "Today Date: 04 Mar 2025" in template_of("llama3_2").render((USER,))


def test_hashes_tell_the_families_apart() -> None:
    hashes = {template_of(name).hash for name in NAMES}
    assert len(hashes) == len(NAMES)
    assert template_of("qwen3").hash == template_of.__wrapped__("qwen3").hash


def test_fault_61_templates_and_data_load_without_unix_modules() -> None:
    """No `resource`, no `fcntl`, no SIGALRM: everything before the sandbox must import."""
    code = (
        "import sys, signal\n"
        "for name in ('resource', 'fcntl', 'pwd', 'grp', 'termios'):\n"
        "    sys.modules[name] = None\n"
        "for name in ('SIGALRM', 'setitimer', 'alarm'):\n"
        "    delattr(signal, name)\n"
        "import groupwise.templates, groupwise.environments, groupwise.verifiers\n"
        "env = groupwise.environments.load_environment('arithmetic', level='table')\n"
        "prompt = env.prompts(1)[0]\n"
        "print(env.verify(prompt, str(prompt.answer)).value)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "1.0"), done.stderr
