"""Reward models: a number for a completion (`reward_model`), or for each of its steps
(`process_reward_model`).

The model reads its own chat template's rendering of the prompt and the completion if it has one,
else the two texts concatenated. A text that does not fit is not cut: it is not scored, and counted.
A checkpoint without a trained head, to which transformers gives a random one, is refused.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, PrivateAttr, model_validator
from torch.nn.utils.rnn import pad_sequence

from groupwise.errors import RecipeError
from groupwise.policies import choose_device
from groupwise.policies.quiet import quiet_transformers
from groupwise.texts import counted
from groupwise.types import Prompt, Score, StepReward
from groupwise.verifiers import Case, SettingsVerifier, Verifier
from groupwise.verifiers.core.composition import VerifierGroup
from groupwise.verifiers.core.contract import VerifierLogs
from groupwise.verifiers.core.scores import graded
from groupwise.verifiers.process.boundaries import SEPARATOR, step_ends, token_places

Scale = Literal["raw", "sigmoid"]
Task = Literal["sequence", "token"]


@dataclass(frozen=True, slots=True)
class Classifier:
    """`model` in evaluation mode on `device`, float32; `max_length` in tokens."""

    model: Any
    tokenizer: Any
    device: torch.device
    max_length: int


def load_classifier(name: str, task: Task, device: str, trust_remote_code: bool) -> Classifier:
    """Raises RecipeError: no such model, no head of that kind, an untrained head, no tokenizer."""
    import transformers

    kinds = {
        "sequence": transformers.AutoModelForSequenceClassification,
        "token": transformers.AutoModelForTokenClassification,
    }
    chosen = choose_device(device)
    with quiet_transformers():
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                name, trust_remote_code=trust_remote_code
            )
            model, info = kinds[task].from_pretrained(
                name,
                dtype=torch.float32,
                use_safetensors=True,  # the older format is a pickle
                trust_remote_code=trust_remote_code,
                output_loading_info=True,
            )
        except (OSError, ValueError, KeyError) as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise RecipeError(f"model = {name!r}: no {task} classifier loads: {first}") from error
    missing = sorted(info["missing_keys"])
    if missing:
        raise RecipeError(
            f"model = {name!r} has no trained weights for {', '.join(missing[:3])}: it is not a "
            f"{task} classifier; give a reward model's folder or hub id"
        )
    model.to(chosen)
    model.eval()
    limits = [getattr(model.config, "max_position_embeddings", None), tokenizer.model_max_length]
    known = [int(limit) for limit in limits if limit is not None and limit < 10**9]
    return Classifier(model, tokenizer, chosen, min(known, default=10**9))


def prompt_ids(tokenizer: Any, prompt: Prompt) -> list[int]:
    """The prompt by the tokenizer's chat template; without one the texts, a message a line."""
    messages = prompt.messages
    if tokenizer.chat_template is None:
        texts = [f"{message.get('content', '')}\n" for message in messages]
        return list(tokenizer(prompt.text or "".join(texts)).input_ids)
    chat = messages or [{"role": "user", "content": prompt.text}]
    text = tokenizer.apply_chat_template(
        [dict(message) for message in chat], tokenize=False, add_generation_prompt=True
    )
    return text_ids(tokenizer, text)


def text_ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False).input_ids)


def answer_ids(tokenizer: Any, text: str) -> list[int]:
    """A completion as a reward model reads it, the end marker included where there is one."""
    end = tokenizer.eos_token_id
    return [*text_ids(tokenizer, text), *([] if end is None else [int(end)])]


class _ModelVerifier(SettingsVerifier):
    """What both kinds share: how the model is named and loaded, and what it reads."""

    concurrent: ClassVar[bool] = True
    task: ClassVar[Task]

    model: str = Field(min_length=1, description="A model folder or a hub id.")
    device: str = Field(default="auto", description="auto (cuda, mps, cpu), or a device's name.")
    label: int = Field(default=1, ge=0, description="The good label, if there are several.")
    trust_remote_code: bool = Field(
        default=False, description="Whether code that comes with the model may run."
    )
    correct_from: float | None = Field(
        default=None,
        description="Value from which the outcome is `correct`; unset: a value and no verdict, so "
        "a reward and no accuracy.",
    )
    batch_rows: int = Field(default=16, ge=1, description="Texts in one forward pass.")
    max_length: int | None = Field(
        default=None, ge=1, description="Tokens of prompt and completion that are read; unset: all."
    )

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        value = self.correct_from
        if value is not None and self.is_bounded and not 0 < value <= 1:
            raise ValueError(
                f"correct_from = {value:g}: values are from 0 to 1 here; give one above 0 and at "
                "most 1"
            )
        return self

    @property
    def is_bounded(self) -> bool:
        """Whether values are from 0 to 1."""
        return True

    @property
    def gives_verdicts(self) -> bool:
        return self.correct_from is not None

    def check_model(self) -> None:
        """Refuse a folder or a hub id that holds no model of this kind, before any weights load.

        Raises RecipeError, also where the hub cannot be reached.
        """
        folder = Path(self.model)
        if not folder.is_dir() and (len(folder.parts) > 2 or folder.is_absolute()):
            raise RecipeError(f"model = {self.model!r}: no such folder; give a model's")
        from transformers import AutoConfig, AutoTokenizer

        kind = "SequenceClassification" if self.task == "sequence" else "TokenClassification"
        with quiet_transformers():
            try:
                trust: Any = {"trust_remote_code": self.trust_remote_code}
                config = AutoConfig.from_pretrained(self.model, **trust)
                tokenizer = AutoTokenizer.from_pretrained(self.model, **trust)
            except (OSError, ValueError, KeyError) as error:
                raise RecipeError(f"model = {self.model!r}: {str(error)[:200]}") from error
        architectures = ", ".join(config.architectures or ()) or "none"
        if kind not in architectures:
            raise RecipeError(
                f"model = {self.model!r} is not a {self.task} classifier (its architectures: "
                f"{architectures}), which verifier {self.verifier_name!r} reads; give a model that "
                f"a stage or another trainer made for it"
            )
        if config.num_labels > 1 or self.task == "token":
            _check_label(self.label, config.num_labels, repr(self.model))
        size = getattr(config.get_text_config(), "vocab_size", None)
        if size is not None and len(tokenizer) > size:
            raise RecipeError(
                f"model = {self.model!r}: its tokenizer has {len(tokenizer)} ids and its "
                f"embeddings {size}: the tokenizer is another model's; restore the right one"
            )

    @cached_property
    def classifier(self) -> Classifier:
        return load_classifier(self.model, self.task, self.device, self.trust_remote_code)

    @property
    def limit(self) -> int:
        own = self.classifier.max_length
        return own if self.max_length is None else min(own, self.max_length)

    def _prompt_ids(self, prompt: Prompt) -> list[int]:
        return prompt_ids(self.classifier.tokenizer, prompt)

    def _text_ids(self, text: str) -> list[int]:
        return text_ids(self.classifier.tokenizer, text)

    def _logits(self, rows: Sequence[list[int]]) -> list[torch.Tensor | None]:
        """Per row its logits, [labels] or [T, labels], float32 on the CPU; None if too long."""
        parts: list[torch.Tensor] = []
        own = self.classifier
        pad = own.model.config.pad_token_id
        size = self.batch_rows if pad is not None else 1
        fitting = [torch.tensor(row) for row in rows if 0 < len(row) <= self.limit]
        for start in range(0, len(fitting), size):
            chunk = fitting[start : start + size]
            ids = pad_sequence(chunk, batch_first=True, padding_value=pad or 0).to(own.device)
            ones = [torch.ones_like(row) for row in chunk]
            mask = pad_sequence(ones, batch_first=True).to(own.device)
            with torch.inference_mode():
                parts.extend(own.model(input_ids=ids, attention_mask=mask).logits.float().cpu())
        left = iter(parts)
        return [next(left) if 0 < len(row) <= self.limit else None for row in rows]

    def _rated(self, value: float, reason: str) -> Score:
        if self.correct_from is None:
            return Score(value, "no_verdict", reason)
        return graded(value, reason, self.correct_from)

    def _too_long(self, length: int) -> Score:
        reason = f"{length} tokens, above the {self.limit} that the model reads"
        return Score(None, "infrastructure_error", reason)


class RewardModel(_ModelVerifier):
    """A sequence classifier's number for prompt and completion.

    With one label it is that logit; with more, the logit of `label` minus the logarithm of the
    others' summed exponentials (its log-odds). `sigmoid` maps it to a value from 0 to 1.
    """

    verifier_name: ClassVar[str] = "reward_model"
    task: ClassVar[Task] = "sequence"

    scale: Scale = Field(default="sigmoid", description="sigmoid: 0 to 1. raw: the logit itself.")
    length_control: bool = Field(
        default=False,
        description="Take from the score what its length is worth, as the `reward_model` stage "
        "measured it on held-out pairs (`length_slope` in the model's config).",
    )

    @property
    def is_bounded(self) -> bool:
        return self.scale != "raw"

    def score(self, cases: Sequence[Case]) -> list[Any]:
        answers = [answer_ids(self.classifier.tokenizer, case.text) for case in cases]
        rows = [[*self._prompt_ids(case.prompt), *ids] for case, ids in zip(cases, answers)]
        return [
            self._too_long(len(row)) if logits is None else self._score(logits, len(ids))
            for row, ids, logits in zip(rows, answers, self._logits(rows))
        ]

    def _score(self, logits: torch.Tensor, tokens: int) -> Score:
        raw = float(logits[0]) if len(logits) == 1 else log_odds(logits, self.label)
        raw -= self._worth(tokens) if self.length_control else 0.0
        value = raw if self.scale == "raw" else 1 / (1 + math.exp(-max(-700.0, min(700.0, raw))))
        return self._rated(value, f"the model gave {value:.4g}")

    def _worth(self, tokens: int) -> float:
        """What a completion's length adds to its score."""
        config = self.classifier.model.config
        slope = getattr(config, "length_slope", None)
        if slope is None:
            raise RecipeError(
                f"length_control = true: {self.model!r} has no length_slope in its config.json; "
                "give a model of a reward_model stage, or false"
            )
        return float(slope) * (tokens - float(config.length_mean))


class ProcessRewardModel(_ModelVerifier):
    """A token classifier's probability that each step is right, combined into one value.

    A step ends at `separator` and where a turn ends, the last one at the completion's end; it is
    judged at its last token. Each step's probability is its reward (`Score.steps`). A step whose
    last token belongs to the next step as well has no value of its own: it counts as a part of that
    one, and in the metric `custom/process_reward_model/unaligned_steps`.
    """

    verifier_name: ClassVar[str] = "process_reward_model"
    task: ClassVar[Task] = "token"

    separator: str | None = Field(
        default=None,
        description='What ends a step: "\\n" for lines, a closing tag; "" is turns alone. Unset: '
        "as the model was trained (`step_separator` in its config), else an empty line.",
    )
    combine: Literal["min", "mean", "product", "last"] = Field(
        default="min", description="How the steps' probabilities become one value."
    )
    _counts: dict[str, int] = PrivateAttr(default_factory=lambda: {"steps": 0, "unaligned": 0})

    @property
    def gives_steps(self) -> bool:
        return True

    @cached_property
    def step_separator(self) -> str:
        if self.separator is not None:
            return self.separator
        return str(getattr(self.classifier.model.config, "step_separator", SEPARATOR))

    def take_logs(self) -> VerifierLogs:
        steps, unaligned = self._counts["steps"], self._counts["unaligned"]
        self._counts.update(steps=0, unaligned=0)
        named = f"{self.verifier_name}/unaligned_steps"
        return VerifierLogs(metrics={named: float(unaligned)} if steps else {})

    def step_values(self, cases: Sequence[Case]) -> list[list[float] | None]:
        """Per case the probability of `label` for each step; None if the text does not fit."""
        found = self._judged(cases)
        return [None if steps is None else [step.value for step in steps] for _, steps in found]

    def _judged(self, cases: Sequence[Case]) -> list[tuple[int, list[StepReward] | None]]:
        """Per case how many tokens it has, and its steps; None if it does not fit."""
        tokenizer = self.classifier.tokenizer
        laid_out = []
        for case in cases:
            ends = step_ends(case.text, self.step_separator, case.turn_ends)
            ids, places = step_tokens(
                tokenizer, prompt_ids(tokenizer, case.prompt), case.text, ends
            )
            self._counts["steps"] += len(places)
            self._counts["unaligned"] += places.count(None)
            laid_out.append((ids, [(e, p) for e, p in zip(ends, places) if p is not None]))
        found: list[tuple[int, list[StepReward] | None]] = []
        for logits, (ids, kept) in zip(self._logits([ids for ids, _ in laid_out]), laid_out):
            if logits is None:
                found.append((len(ids), None))
                continue
            _check_label(self.label, logits.shape[-1], repr(self.model))
            shares = logits.softmax(-1)[:, self.label]
            found.append((len(ids), [StepReward(float(shares[p]), e) for e, p in kept]))
        return found

    def score(self, cases: Sequence[Case]) -> list[Any]:
        return [self._score(length, steps) for length, steps in self._judged(cases)]

    def _score(self, length: int, steps: list[StepReward] | None) -> Score:
        if steps is None:
            return self._too_long(length)
        if not steps:
            return Score(0.0, "no_answer", "no step was written", steps=())
        values = [step.value for step in steps]
        value = {
            "min": min(values),
            "mean": sum(values) / len(values),
            "product": math.prod(values),
            "last": values[-1],
        }[self.combine]
        shown = ", ".join(f"{each:.2f}" for each in values[:8])
        score = self._rated(value, f"{counted(len(values), 'step')}: {shown}")
        return replace(score, steps=tuple(steps))


def step_tokens(
    tokenizer: Any, before: Sequence[int], text: str, ends: Sequence[int]
) -> tuple[list[int], list[int | None]]:
    """The ids of a prompt and a text, and the place of each step's last token among them.

    `ends` are the character counts at which steps end; None for a step without a token of its own.
    """
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    places = token_places(text, ends, encoded.offset_mapping)
    ids = [*before, *encoded.input_ids]
    return ids, [None if place is None else len(before) + place for place in places]


def check_classifiers(verifier: Verifier, pending: Collection[str] = ()) -> None:
    """`check_model` of every reward model and local judge in a verifier, but for folders that are
    `pending`, which an earlier stage will leave. Raises RecipeError."""
    reader: Any = getattr(verifier, "reader", verifier)  # a rubric's
    if isinstance(verifier, VerifierGroup):
        for each in verifier.members:
            check_classifiers(each, pending)
    elif hasattr(reader, "check_model") and reader.model not in pending:
        reader.check_model()


def log_odds(logits: torch.Tensor, label: int) -> float:
    """log p / (1 - p) of one label, from logits [labels].

    >>> round(log_odds(torch.tensor([0.0, 1.0]), 1), 4)
    1.0
    """
    _check_label(label, len(logits), "the model")
    others = torch.cat([logits[:label], logits[label + 1 :]])
    return float(logits[label] - others.logsumexp(0))


def _check_label(label: int, num_labels: int, model: str) -> None:
    if label >= num_labels:
        raise RecipeError(f"label = {label}: {model} has labels 0 to {num_labels - 1}")
