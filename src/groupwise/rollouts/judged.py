"""What a verifier reads of a rollout, and where in the ids a step of that text ends.

Only the policy's own text is read: that of the last turn, or of all turns, as the environment says
(`Environment.judged`). Thinking that was cut off by its budget is left out, and so is the text that
was forced behind it; the answer that follows is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from groupwise.environments import Environment
from groupwise.environments.base import Judged
from groupwise.errors import VerifierError
from groupwise.templates import Template, token_ends
from groupwise.types import Rollout, Score, StepReward, Turn
from groupwise.verifiers import Case

ReadTurns = list[tuple[int, str]]
"""Numbers of turns, each with what joins its text to the next one's: a newline, or nothing."""


def turns_read(turns: Sequence[Turn], continued: Sequence[int], judged: Judged) -> ReadTurns:
    """The turns that are read: all, or the last one with the turns that it continues.

    A turn in `continued` belongs to the message of the one before. Where forced text stands between
    the two, the one before is left out.
    """
    read: ReadTurns = []
    for number, turn in enumerate(turns):
        if number in continued and turn.context_ids:
            read.pop()
        elif number in continued:
            read[-1] = (read[-1][0], "")
        elif judged == "last":
            read.clear()
        read.append((number, "\n"))
    return [*read[:-1], (read[-1][0], "")]


def case_of(rollout: Rollout, judged: Judged) -> Case:
    """The verifier's case of a rollout that `collect` made."""
    continued, output = rollout.extras.continued, rollout.extras.output
    read = turns_read(rollout.turns, continued, judged)
    last = rollout.turns[-1].completion
    return Case(
        prompt=rollout.prompt,
        text="".join(rollout.turns[number].completion.text + joint for number, joint in read)
        if output is None
        else output,
        completion_ids=last.token_ids,
        finish_reason=last.finish_reason,
        turns=rollout.extras.messages,
        result=rollout.extras.result,
        opened="" if read[0][0] in continued or output is not None else rollout.extras.opened,
        turn_ends=_turn_ends(rollout.turns, read) if len(read) > 1 and output is None else (),
    )


def turn_steps(
    turns: Sequence[Turn], read: ReadTurns, rewards: Sequence[float]
) -> tuple[StepReward, ...]:
    """The rewards of turns as steps of the text that is read: a turn ends with its newline.

    The reward of an empty last turn goes to the turn before.
    """
    steps: list[StepReward] = []
    for value, end in zip(rewards, _turn_ends(turns, read)):
        if steps and steps[-1].end == end:
            steps[-1] = StepReward(steps[-1].value + value, end)
        elif end:
            steps.append(StepReward(value, end))
    return tuple(steps)


def _turn_ends(turns: Sequence[Turn], read: ReadTurns) -> tuple[int, ...]:
    """The character counts at which the turns end in the text that is read."""
    lengths = accumulate(len(turns[number].completion.text) + len(joint) for number, joint in read)
    last = len(read) - 1
    return tuple(
        end for place, (end, (_, joint)) in enumerate(zip(lengths, read)) if joint or place == last
    )


def step_ends(
    score: Score, rollout: Rollout, template: Template, environment: Environment
) -> tuple[int, ...] | None:
    """The positions in `completion_ids` of the tokens that end the score's steps.

    Raises VerifierError where a step ends outside the text that was read.
    """
    if score.steps is None:
        return None
    if rollout.extras.output is not None:
        raise VerifierError(
            f"the verifier of environment {environment.name!r} rewards steps of the agent's own "
            'output, whose text the policy did not sample; set environment.answer = "completion"'
        )
    judged = environment.judged_for(rollout.prompt)
    read = turns_read(rollout.turns, rollout.extras.continued, judged)
    found: list[int] = []
    start = 0
    ends = [step.end for step in score.steps]
    for place, (number, joint) in enumerate(read):
        completion = rollout.turns[number].completion
        is_last = place + 1 == len(read)
        size = len(completion.text) + len(joint)
        own = [end - start for end in ends if start < end and (is_last or end <= start + size)]
        first = _first_position(rollout, number)
        if not completion.text and not is_last:  # only the newline before the next turn
            found += [first + max(completion.num_tokens - 1, 0)] * len(own)
        else:
            limited = own if is_last else [min(end, len(completion.text)) for end in own]
            ids, text = completion.token_ids, completion.text
            try:
                places = token_ends(ids, text, limited, template.decode_completion)
            except ValueError as error:
                name = environment.name
                raise VerifierError(f"the verifier of environment {name!r}: {error}") from error
            found += [first + at for at in places]
        start += size
    return tuple(found)


def _first_position(rollout: Rollout, number: int) -> int:
    """Where the completion of a turn begins in `completion_ids`."""
    before = sum(turn.completion.num_tokens for turn in rollout.turns[:number])
    return before + sum(len(turn.context_ids) for turn in rollout.turns[1 : number + 1])
