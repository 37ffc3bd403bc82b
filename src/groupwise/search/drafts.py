"""What a search writes: whole completions, completions with a thinking budget, and beams of steps.

Ids grow by concatenation, as everywhere: what was sampled is never encoded again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from groupwise.randomness import stream_key
from groupwise.samplers import Sampler
from groupwise.search.settings import SearchSettings
from groupwise.templates import Template
from groupwise.types import Completion, FinishReason, Prompt, Request
from groupwise.verifiers import Case


@dataclass(frozen=True, slots=True)
class Draft:
    """A completion so far. `logprobs` [T] are one to one with `ids`, None where text was forced;
    `reason` is None while it may be continued."""

    ids: tuple[int, ...] = ()
    logprobs: tuple[float | None, ...] = ()
    text: str = ""
    reason: FinishReason | None = None


Asked = tuple[int, Draft]
"""The place of a prompt, and what is written for it."""
ScoreDrafts = Callable[[Sequence[Asked]], list[float | None]]


@dataclass(slots=True)
class Writer:
    """Continues drafts of prompts. `tokens` counts all that was sampled, `waits` and `closed` what
    was forced."""

    sampler: Sampler
    template: Template
    prompts: Sequence[Prompt]
    settings: SearchSettings
    tokens: int = 0
    forced: dict[str, int] = field(default_factory=lambda: {"waits": 0, "closed": 0})
    _calls: int = 0

    def case(self, asked: Asked) -> Case:
        """What a verifier reads of a draft."""
        place, draft = asked
        prompt = self.prompts[place]
        opened = self.template.opened(prompt)
        return Case(prompt, draft.text, draft.ids, draft.reason or "length", opened=opened)

    def extend(
        self,
        asked: Sequence[Asked],
        max_tokens: int | None = None,
        stop: tuple[str, ...] = (),
    ) -> list[Draft]:
        """Every draft continued until it ends, a stop string, or `max_tokens` tokens in all; one
        that has ended stays as it is. No two calls share noise."""
        limit = max_tokens or self.settings.max_tokens
        self._calls += 1
        indices: Counter[int] = Counter()
        open_places: list[int] = []
        requests: list[Request] = []
        for place, (number, draft) in enumerate(asked):
            prompt, index = self.prompts[number], indices[number]
            indices[number] += 1
            if draft.reason or len(draft.ids) >= limit:
                continue
            open_places.append(place)
            requests.append(
                Request(
                    prompt_ids=(*self.template.encode_prompt(prompt), *draft.ids),
                    key=stream_key(
                        self.settings.seed, "probe", "search", prompt.id, self._calls, index
                    ),
                    max_tokens=limit - len(draft.ids),
                    temperature=self.settings.temperature,
                    stop_strings=stop,
                )
            )
        made = [
            replace(draft, reason=draft.reason or ("length" if len(draft.ids) >= limit else None))
            for _, draft in asked
        ]
        completions = self.sampler.sample(requests) if requests else []
        for place, completion in zip(open_places, completions, strict=True):
            self.tokens += completion.num_tokens
            made[place] = self._joined(asked[place][1], completion)
        return made

    def _joined(self, draft: Draft, completion: Completion) -> Draft:
        ids = (*draft.ids, *completion.token_ids)
        ended = bool(ids) and ids[-1] in self.template.stop_ids
        at_stop_string = completion.finish_reason == "stop" and not ended
        return Draft(
            ids,
            (*draft.logprobs, *completion.sampler_logprobs),
            self.template.decode_completion(ids),
            None if at_stop_string else completion.finish_reason,
        )

    def force(self, draft: Draft, text: str) -> Draft:
        """The draft with a text that the policy did not write."""
        ids = self.template.encode(text)
        whole = (*draft.ids, *ids)
        logprobs = (*draft.logprobs, *(None,) * len(ids))
        return Draft(whole, logprobs, self.template.decode_completion(whole))

    def without_end(self, draft: Draft, end: str) -> Draft:
        """The draft without the tokens of its last characters `end`."""
        count, size = len(draft.ids), len(draft.text) - len(end)
        while len(self.template.decode_completion(draft.ids[:count])) > size:
            count -= 1
        ids = draft.ids[:count]
        return Draft(ids, draft.logprobs[:count], self.template.decode_completion(ids))


def budgeted(writer: Writer, places: Sequence[int], budget: int) -> list[Draft]:
    """A completion for each place with budget forcing (s1, arXiv 2501.19393).

    An end of thinking is taken back and replaced by `wait`, `waits` times, while the budget lasts;
    thinking that has spent its budget is closed. Then the answer is sampled. A completion without
    thinking is left as the policy wrote it.
    """
    settings = writer.settings
    start, stop = settings.thinking_start, settings.thinking_stop

    def thinks(place: int, draft: Draft) -> bool:
        return start in draft.text or bool(writer.template.opened(writer.prompts[place]))

    drafts = [Draft() for _ in places]
    for left in range(settings.waits, -1, -1):
        drafts = writer.extend(list(zip(places, drafts)), budget, (stop,))
        for i, (place, draft) in enumerate(zip(places, drafts)):
            ends = thinks(place, draft) and draft.text.endswith(stop) and not draft.reason
            if left and ends and len(draft.ids) < budget:
                drafts[i] = writer.force(writer.without_end(draft, stop), settings.wait)
                writer.forced["waits"] += 1
    for i, (place, draft) in enumerate(zip(places, drafts)):
        if draft.reason == "length":
            drafts[i] = replace(draft, reason=None)
        if thinks(place, draft) and stop not in draft.text and draft.reason != "stop":
            drafts[i] = writer.force(draft, f"\n{stop}" if draft.text[-1:] != "\n" else stop)
            writer.forced["closed"] += 1
    return writer.extend(list(zip(places, drafts)))


def beam(writer: Writer, score: ScoreDrafts) -> list[tuple[Draft, float | None]]:
    """The best draft of each prompt and its score, found step by step.

    `samples` continuations by one step are shared by the beginnings that are open; of these and the
    finished ones the `width` best are kept. Equal scores go to the earlier draft. It ends where all
    kept drafts are finished, or after `max_steps`; what is open then is completed.
    """
    settings = writer.settings
    kept: list[list[tuple[Draft, float | None]]] = [[(Draft(), None)] for _ in writer.prompts]
    for _ in range(settings.max_steps):
        asked: list[Asked] = []
        for place, own in enumerate(kept):
            live = [draft for draft, _ in own if draft.reason is None]
            for number, draft in enumerate(live):
                share = len(range(number, settings.samples, len(live)))
                asked.extend([(place, draft)] * share)
        if not asked:
            break
        made = writer.extend(asked, stop=(settings.separator,))
        grown = [(place, draft) for (place, _), draft in zip(asked, made, strict=True)]
        scores = score(grown)
        kept = [[each for each in own if each[0].reason is not None] for own in kept]
        for (place, draft), value in zip(grown, scores, strict=True):
            kept[place].append((draft, value))
        kept = [sorted(own, key=_first)[: settings.width] for own in kept]
    best = [own[0] for own in kept]
    whole = writer.extend([(place, draft) for place, (draft, _) in enumerate(best)])
    return [(draft, value) for draft, (_, value) in zip(whole, best, strict=True)]


def _first(scored: tuple[Draft, float | None]) -> float:
    return float("inf") if scored[1] is None else -scored[1]
