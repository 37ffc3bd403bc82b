"""Small tokenizers with known ids, for the tests of templates and samplers."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors


def byte_bpe(texts: Sequence[str], merges: int = 40, special: Sequence[str] = ()) -> Tokenizer:
    """A byte-level BPE trained on `texts`: tokens of several characters and of parts of one."""
    from tokenizers import trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=256 + len(special) + merges,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(special),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def words(special: Sequence[str], plain: Sequence[str], *, bos: str | None = None) -> Tokenizer:
    """Ids in the order given, special tokens first; `bos` is put in front by the tokenizer."""
    vocabulary = {token: place for place, token in enumerate([*special, *plain])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=plain[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    if bos is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, vocabulary[bos])]
        )
    return tokenizer


def merging() -> Tokenizer:
    """Tokens a, b and ab (ids 0, 1, 2): decoding [a, b] and encoding it again gives [ab]."""
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0, "b": 1, "ab": 2}, merges=[("a", "b")]))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken("<e>", special=True, normalized=False)])
    return tokenizer
