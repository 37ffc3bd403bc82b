"""`tiny`: a small decoder that adds single digits, and is right about 42 % of the time.

Built on first use, in seconds, from this file alone: a Llama of 2 layers, a tokenizer of single
characters, a chat format, and a supervised start on a table of 55 sums with noisy labels. Cached by
the hash of everything that decides its weights.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from groupwise.policies.cache import cached_folder
from groupwise.policies.quiet import quiet_transformers

PAD, BOS, END, UNKNOWN = "<|pad|>", "<|bos|>", "<|end|>", "<|unknown|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
CHARACTERS = "\n" + "".join(chr(code) for code in range(32, 127))

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


@dataclass(frozen=True)
class TinyRecipe:
    """Everything that decides the weights.

    Of `labels_per_sum` labels of a pair, `right` are the sum and the rest are spread over the other
    digits by their distance, `near` ** distance: a wrong answer is plausible and never impossible.
    """

    seed: int = 0
    hidden_size: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    initializer_range: float = 0.1
    intermediate_size: int = 192
    max_length: int = 1024
    updates: int = 400
    learning_rate: float = 5e-3
    weight_decay: float = 0.01
    right: float = 0.427
    near: float = 0.5

    @property
    def name(self) -> str:
        text = json.dumps(
            [asdict(self), CHAT_TEMPLATE, CHARACTERS, PAD, BOS, END, UNKNOWN, ROLES, "2"]
        )
        return f"tiny-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def build_tiny(recipe: TinyRecipe | None = None) -> Path:
    """The folder of the tiny model in the cache, built and trained when it is not there."""
    recipe = recipe or TinyRecipe()
    return cached_folder(recipe.name, lambda folder: _build(recipe, _cold_start, folder))


def sums() -> list[tuple[int, int]]:
    """The 55 ordered pairs of digits whose sum is a digit."""
    return [(a, b) for a in range(10) for b in range(10) if a + b <= 9]


def label_shares(total: int, recipe: TinyRecipe) -> list[float]:
    """The share of each digit 0 to 9 among the labels of a pair with this sum."""
    wrong = [0.0 if digit == total else recipe.near ** abs(digit - total) for digit in range(10)]
    rest = (1.0 - recipe.right) / sum(wrong)
    return [recipe.right if digit == total else share * rest for digit, share in enumerate(wrong)]


@lru_cache(maxsize=1)
def vocabulary() -> dict[str, int]:
    tokens = [PAD, BOS, END, UNKNOWN, *ROLES, *CHARACTERS]
    return {token: index for index, token in enumerate(tokens)}


def build_model(
    recipe: TinyRecipe,
    cold_start: Callable[[Any, Any], None],
    *,
    pieces: Sequence[str] = (),
    chat_template: str = CHAT_TEMPLATE,
) -> Path:
    """The folder of a model of this shape, started by `cold_start(model, recipe)`, in the cache.

    `pieces` are texts that are one token each, behind the vocabulary. The weights are a function of
    the recipe, the pieces and the module of `cold_start`, which the folder's name is made from.
    """
    name = model_name(recipe, cold_start, pieces, chat_template)
    return cached_folder(
        name, lambda folder: _build(recipe, cold_start, folder, pieces, chat_template)
    )


def model_name(
    recipe: TinyRecipe,
    cold_start: Callable[[Any, Any], None],
    pieces: Sequence[str] = (),
    chat_template: str = CHAT_TEMPLATE,
) -> str:
    """The name of the folder that `build_model` makes of these."""
    source = inspect.getsource(inspect.getmodule(cold_start) or cold_start)
    text = json.dumps([recipe.name, source, list(pieces), chat_template])
    return f"tiny-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _build(
    recipe: TinyRecipe,
    cold_start: Callable[[Any, Any], None],
    folder: Path,
    pieces: Sequence[str] = (),
    chat_template: str = CHAT_TEMPLATE,
) -> None:
    """Makes the model, trains it, and writes it with its tokenizer. One thread and the recipe's
    seed, so that the weights are a function of the recipe."""
    import torch
    from transformers import PreTrainedTokenizerFast

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a sum's order depends on the number of threads
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            model = _untrained(recipe, len(vocabulary()) + len(pieces))
            cold_start(model, recipe)
    finally:
        torch.set_num_threads(threads)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_tokenizer(pieces),
        bos_token=BOS,
        eos_token=END,
        pad_token=PAD,
        unk_token=UNKNOWN,
        chat_template=chat_template,
    )
    with quiet_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _tokenizer(pieces: Sequence[str]) -> Any:
    """One token per printable character; role and end markers are single special tokens."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel(vocabulary(), unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token in (PAD, BOS, END, UNKNOWN, *ROLES)
        ]
    )
    if pieces:
        tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in pieces])
    return tokenizer


def _untrained(recipe: TinyRecipe, vocab_size: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    ids = vocabulary()
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=recipe.hidden_size,
            intermediate_size=recipe.intermediate_size,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.kv_heads,
            max_position_embeddings=recipe.max_length,
            initializer_range=recipe.initializer_range,
            tie_word_embeddings=True,
            bos_token_id=ids[BOS],
            eos_token_id=ids[END],
            pad_token_id=ids[PAD],
        )
    )


def _cold_start(model: Any, recipe: TinyRecipe) -> None:
    """Cross-entropy on the noisy labels of all 55 sums, and on the end that follows each digit.

    The data set holds every pair with many labels. Its rows with equal labels are one row with a
    share, so that every update sees all of it: the same gradient, at a hundredth of the cost.
    """
    import torch

    ids = vocabulary()
    prompts = [[ids[BOS], ids["<|user|>"], *(ids[c] for c in f"{a}+{b}=")] for a, b in sums()]
    prompts = [[*prompt, ids[END], ids["<|assistant|>"]] for prompt in prompts]
    digits = torch.tensor([ids[str(digit)] for digit in range(10)])
    shares = torch.tensor([label_shares(a + b, recipe) for a, b in sums()])
    rows = torch.tensor(prompts).repeat_interleave(10, 0)
    rows = torch.cat([rows, digits.repeat(len(prompts))[:, None]], dim=1)
    # The digit is predicted after the prompt; the end after each of a few digits, which is enough
    # to learn that an answer is one digit long.
    generator = torch.Generator().manual_seed(recipe.seed)

    def loss() -> Any:
        pick = torch.randint(10, (len(prompts),), generator=generator)
        inputs = rows.view(len(prompts), 10, -1)[torch.arange(len(prompts)), pick]
        logits = model(input_ids=inputs, use_cache=False, logits_to_keep=2).logits.log_softmax(-1)
        return -(shares * logits[:, 0, digits]).sum(-1).mean() - logits[:, 1, ids[END]].mean()

    train(model, recipe, loss)


def train(model: Any, recipe: TinyRecipe, loss: Callable[[], Any]) -> None:
    """AdamW with one cycle of the learning rate over the recipe's updates; `loss()` makes each."""
    import torch

    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.learning_rate, total_steps=recipe.updates, pct_start=0.1
    )
    for _ in range(recipe.updates):
        value = loss()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()


Row = list[tuple[str, float]]
"""The tokens of a chat, each with its weight in the loss."""


def row_loss(model: Any, rows: Sequence[Row], pieces: Sequence[str]) -> Any:
    """The weighted mean cross-entropy of the rows' tokens, each predicted from those before it."""
    import torch

    ids = {**vocabulary(), **{each: len(vocabulary()) + i for i, each in enumerate(pieces)}}
    longest = max(map(len, rows))
    padded = [[*row, *[(PAD, 0.0)] * (longest - len(row))] for row in rows]
    inputs = torch.tensor([[ids[token] for token, _ in row] for row in padded])
    weights = torch.tensor([[weight for _, weight in row] for row in padded])[:, 1:].flatten()
    logits = model(input_ids=inputs[:, :-1], use_cache=False).logits
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), inputs[:, 1:].flatten(), reduction="none"
    )
    return (losses * weights).sum() / weights.sum()


def read(*tokens: str) -> Row:
    """Tokens that are only read."""
    return [(token, 0.0) for token in tokens]


def learned(tokens: Iterable[str], first: float = 1.0) -> Row:
    """Tokens that are learned, the first of them with a weight of its own."""
    weighted = [(token, 1.0) for token in tokens]
    return [(weighted[0][0], first), *weighted[1:]]
