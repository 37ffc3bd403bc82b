"""Counts, memory and disk of a plan, against arithmetic by hand and against what torch holds."""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from groupwise.checkpoints import save_checkpoint, training_state
from groupwise.errors import RecipeError
from groupwise.planning import (
    SMOLLM2_135M,
    Comparison,
    PlanInputs,
    memory,
    no_signal_share,
    plan,
    refill_factor,
    render,
    run_plan,
    shape,
    shape_from_config,
)

INPUTS = PlanInputs(
    model="smollm2-135m",
    shape=SMOLLM2_135M,
    train_prompts=32,
    evaluated_prompts=8,
    longest_prompt=40,
    mean_prompt=35.0,
    prompts_per_step=4,
    group_size=8,
    max_tokens=64,
    steps=16,
)


def llama(hidden: int = 32, layers: int = 2, tied: bool = True, **sizes: int):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=50,
            hidden_size=hidden,
            intermediate_size=sizes.get("intermediate", 3 * hidden),
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=tied,
        )
    )


@pytest.mark.parametrize("module", [memory, run_plan, shape, render])
def test_examples(module):
    assert doctest.testmod(module).failed == 0


def test_counts_of_the_faults_table():
    """Fault 31: 32 prompts, 4 a step, G 8, 2 epochs are 16 steps, for any split into updates."""
    for minibatches, passes in ((1, 1), (4, 1), (2, 3)):
        made = plan(replace(INPUTS, minibatches=minibatches, passes=passes))
        assert (made.inputs.steps, made.epochs, made.steps_per_epoch) == (16, 2.0, 8.0)
        assert made.updates_per_step == passes * minibatches
        assert made.total_updates == 16 * passes * minibatches
    made = plan(INPUTS)
    assert (made.completions_per_step, made.max_tokens_per_step) == (32, 2048)
    assert (made.total_prompts, made.total_completions, made.max_total_tokens) == (64, 512, 32768)


def test_any_pair_of_numbers_is_legal():
    made = plan(replace(INPUTS, train_prompts=7, prompts_per_step=4, steps=7))
    assert (made.steps_per_epoch, made.epochs) == (1.75, 4.0)
    made = plan(replace(INPUTS, train_prompts=3, prompts_per_step=4))
    assert any("more than once within a step" in note for note in made.notes)


def test_greedy_rollouts_are_counted_and_not_trained_on():
    made = plan(replace(INPUTS, greedy_rollouts=True))
    assert made.completions_per_step == 36


def test_evaluations_and_checkpoints():
    made = plan(replace(INPUTS, evaluate_every=5, evaluation_samples=4))
    assert made.evaluations == 5  # before, after 5, 10, 15 and 16
    assert made.completions_per_evaluation == 40
    assert made.max_tokens_per_evaluation == 2560
    assert plan(replace(INPUTS, evaluate_every=0)).evaluations == 2
    assert plan(replace(INPUTS, evaluate_every=8)).evaluations == 3
    made = plan(replace(INPUTS, checkpoint_every=4, checkpoints_kept=2))
    assert made.checkpoints_written == 4
    assert made.disk_bytes == 3 * made.checkpoint_bytes
    assert plan(INPUTS).disk_bytes == made.checkpoint_bytes
    best = plan(replace(INPUTS, checkpoint_every=4, checkpoints_kept=1, best_kept=1))
    assert best.disk_bytes == 3 * made.checkpoint_bytes


def test_a_critic_by_kind():
    """One more float32 model with its gradients and moments, less an untied output layer."""
    from groupwise.policies import make_critic
    from helpers import make_policy

    own = SMOLLM2_135M.parameters + 576 + 1
    bare, separate, shared = (
        plan(replace(INPUTS, critic=kind, checkpoint_every=4))
        for kind in (None, "separate", "shared")
    )
    assert separate.memory.always["critic weights"] == 4 * own
    assert separate.memory.always["critic moments"] == 8 * own
    assert separate.memory.learning["critic gradients"] == 4 * own
    assert separate.memory.peak - bare.memory.peak == 16 * own
    assert separate.checkpoint_bytes - bare.checkpoint_bytes == 12 * own
    assert shared.memory.peak - bare.memory.peak == 16 * 577
    policy = make_policy()
    shape = shape_from_config(policy.model.config, policy.num_parameters)
    for kind in ("separate", "shared"):
        made = make_critic(policy, shared=kind == "shared")
        count = sum(p.numel() for p in made.parameters())
        assert memory.critic_parameters(shape, kind) == count


def test_comparison_with_ppo():
    small = replace(INPUTS, micro_batch_tokens=256)
    both = Comparison(
        "grpo", "ppo", (plan(small), plan(replace(small, critic="separate", reference=True)))
    )
    rows = {name: sizes for name, *sizes in both.rows}
    assert rows["weights"] == [538_060_032, 538_060_032]
    assert rows["reference"] == [0, 538_060_032]
    assert rows["critic gradients (while learning)"] == [0, 4 * (134_515_008 + 577)]
    assert both.saved == pytest.approx(1 - both.plans[0].memory.peak / both.plans[1].memory.peak)
    assert 0.4 < both.saved < 0.6
    assert json.loads(json.dumps(both.to_dict()))["algorithms"] == ["grpo", "ppo"]
    shown = io.StringIO()
    both.print(Console(file=shown, width=100))
    for words in ("critic moments", "less memory"):
        assert words in shown.getvalue()


def test_groups_without_signal():
    """Fault 32."""
    shares = [no_signal_share(0.1819, size) for size in (2, 4, 8)]
    assert shares == pytest.approx([0.702, 0.449, 0.201], abs=5e-4)
    assert no_signal_share(1.0, 8) == 1.0
    with pytest.raises(ValueError):
        no_signal_share(1.2, 4)
    assert any("no signal" in note for note in plan(replace(INPUTS, group_size=2)).notes)


def test_smollm2_is_known_without_fetching_it():
    assert SMOLLM2_135M.parameters == 134_515_008
    assert (SMOLLM2_135M.layers, SMOLLM2_135M.kv_width, SMOLLM2_135M.tied) == (30, 192, True)


@pytest.mark.parametrize("tied", [True, False])
def test_a_shape_from_a_config_has_the_model_s_parameters(tied: bool):
    model = llama(tied=tied)
    found = shape_from_config(model.config)
    assert found.parameters == sum(p.numel() for p in model.parameters())
    assert shape_from_config(model.config.to_dict()) == found
    embedding = model.get_input_embeddings().weight.numel()
    assert found.matrix_parameters == found.parameters - (0 if tied else embedding)


def test_a_shape_from_another_family():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=30))
    count = sum(p.numel() for p in model.parameters())
    found = shape_from_config(model.config, count)
    assert (found.parameters, found.intermediate, found.kv_width) == (count, 64, 16)
    with pytest.raises(RecipeError, match="has no num_hidden_layers"):
        shape_from_config({"hidden_size": 8, "num_attention_heads": 2})


def test_memory_by_kind_in_float32():
    made = plan(replace(INPUTS, reference=True)).memory
    count = 134_515_008
    assert made.always == {
        "weights": 4 * count,
        "optimizer moments": 8 * count,
        "reference": 4 * count,
    }
    assert made.learning["gradients"] == 4 * count
    assert made.sampling["KV cache"] == 32 * 104 * 30 * 2 * 192 * 4
    assert made.peak == made.peak_learning > made.peak_sampling
    assert sum(made.always.values()) + made.learning["gradients"] == 20 * count


def test_an_adapter_trains_alone_and_the_reference_shares_its_base():
    count, adapter = 134_515_008, 4_884_480
    given = replace(INPUTS, reference=True, adapter_parameters=adapter)
    made = plan(given)
    assert made.memory.always == {
        "weights": 4 * count,
        "adapter": 4 * adapter,
        "optimizer moments": 8 * adapter,
        "reference": 4 * adapter,
    }
    assert made.memory.learning["gradients"] == 4 * adapter
    assert made.checkpoint_bytes == 12 * adapter
    low = plan(replace(given, dtype="bfloat16")).memory
    assert low.always["sampler's copy"] == 2 * (count + adapter)
    assert "134,515,008 parameters and 4,884,480 of an adapter, which train" in made.summary_line()


def test_a_base_in_4_bits_holds_layers_so_and_is_sampled_from_a_copy():
    count, table, adapter = 134_515_008, 49_152 * 576, 4_884_480
    made = plan(replace(INPUTS, adapter_parameters=adapter, nf4=True, dtype="bfloat16")).memory
    assert made.always["weights"] == 4 * table + int(0.52 * (count - table))
    assert made.always["sampler's copy"] == 2 * (count + adapter)
    assert "low-precision weights" not in made.learning


def test_bfloat16_copies_and_plain_sgd():
    made = plan(replace(INPUTS, dtype="bfloat16", optimizer="sgd")).memory
    assert made.always["sampler's copy"] == 2 * 134_515_008
    assert "optimizer moments" not in made.always
    assert made.sampling["KV cache"] == 32 * 104 * 30 * 2 * 192 * 2


def test_sampling_ahead_adds_weights_and_what_sampling_takes_to_learning():
    whole, ahead = (plan(replace(INPUTS, ahead=each)).memory for each in (False, True))
    assert ahead.always["sampler's weights"] == 4 * 134_515_008
    assert ahead.always["sampler's KV cache"] == whole.sampling["KV cache"]
    assert ahead.peak == whole.peak_sampling + sum(whole.learning.values()) + 4 * 134_515_008


def test_processes_share_what_trains_and_each_holds_a_whole_copy_to_sample_from():
    count, table = 134_515_008, 49_152 * 576
    given = replace(INPUTS, reference=True, processes=3, process_bytes=7, available_bytes=10**9)
    made = plan(given)
    memory = made.memory
    third = -(-4 * count // 3)
    assert memory.always == {
        "weights": third,
        "optimizer moments": -(-8 * count // 3),
        "reference": third,
        "sampler's weights": 4 * count,
        "libraries and buffers": 7,
    }
    block = (count - table) // 30
    assert memory.learning["gradients"] == third
    assert memory.learning["gathered weights and gradients"] == 8 * (2 * table + 3 * block)
    assert memory.peak_starting == 3 * 4 * count + 7
    assert memory.peak == max(memory.peak_starting, memory.peak_sampling, memory.peak_learning)
    assert made.to_dict()["memory"]["in_all"] == 3 * memory.peak
    assert "in each of 3 processes" in made.summary_line()
    assert any(f"peak of {3 * memory.peak / 1e9:.1f} GB of 3 processes" in n for n in made.notes)


def test_less_memory_with_checkpointing_and_smaller_micro_batches():
    whole = plan(INPUTS).memory
    assert plan(replace(INPUTS, gradient_checkpointing=True)).memory.peak < whole.peak
    assert plan(replace(INPUTS, micro_batch_tokens=512)).memory.peak < whole.peak
    small = plan(replace(INPUTS, micro_batch_tokens=1)).memory
    assert small.learning["activations"] == memory.activation_bytes(SMOLLM2_135M, 104, "float32")


def test_too_little_memory_is_said():
    made = plan(replace(INPUTS, available_bytes=10**9))
    assert any("exceeds the 1.0 GB of this machine" in note for note in made.notes)
    assert not plan(replace(INPUTS, available_bytes=10**13)).notes


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("hidden", "intermediate"), [(64, 192), (128, 512)])
def test_the_activation_estimate_is_what_autograd_keeps(dtype, hidden: int, intermediate: int):
    model = llama(hidden=hidden, intermediate=intermediate).train()
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        # Low-precision casts of weights start with a width of the model; they are counted apart.
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and tensor.shape[0] not in (hidden, intermediate):
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    cast = contextlib.nullcontext()
    if dtype == "bfloat16":
        cast = torch.autocast("cpu", dtype=torch.bfloat16)
    ids = torch.randint(0, 50, (4, 50), generator=torch.Generator().manual_seed(0))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t), cast:
        output = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
    estimate = memory.activation_bytes(shape_from_config(model.config), 200, dtype)
    assert output.requires_grad
    assert estimate == pytest.approx(sum(kept.values()), rel=0.15)


def test_a_checkpoint_is_as_large_as_planned(tmp_path: Path):
    """Fault 45: the expected size is printed, so it must be right."""
    model = llama(hidden=64)
    for optimizer in (
        torch.optim.AdamW(model.parameters()),
        torch.optim.SGD(model.parameters(), lr=0.1),
    ):
        model(input_ids=torch.tensor([[1, 2, 3]])).logits.sum().backward()
        optimizer.step()
        model_state, optimizer_state = training_state(model, optimizer)
        name = "adamw" if isinstance(optimizer, torch.optim.AdamW) else "sgd"
        path = save_checkpoint(
            tmp_path / name,
            1,
            model_state=model_state,
            optimizer_state=optimizer_state,
            state={},
        )
        size = sum(p.stat().st_size for p in path.iterdir())
        expected = memory.checkpoint_file_bytes(shape_from_config(model.config), name)
        assert expected <= size <= expected + 40_000


def test_a_plan_as_text_and_as_json():
    made = plan(replace(INPUTS, reference=True))
    buffer = io.StringIO()
    made.print(Console(file=buffer, width=100))
    text = buffer.getvalue()
    for part in (
        *("completions a step", "2,048", "steps an epoch", "134,515,008", "538 MB"),
        *("memory, reference", "a checkpoint", "1.61 GB"),
    ):
        assert part in text
    line = made.summary_line()
    assert (
        "16 steps of 4 prompts x 8 completions (32 completions, at most 2,048 tokens a step)"
        in line
    )
    assert "8 steps an epoch, 2 epochs of 32 prompts" in line
    assert "checkpoints of 1.61 GB" in line
    small = plan(replace(INPUTS, steps=1, prompts_per_step=1, minibatches=1, train_prompts=1))
    assert small.summary_line().startswith("1 step of 1 prompt x 8 completions (8 completions")
    assert "epochs of 1 prompt; 134,515,008 parameters" in small.summary_line()
    table = json.loads(json.dumps(made.to_dict()))
    assert table["total_completions"] == 512
    assert table["memory"]["peak"] == made.memory.peak
    assert table["inputs"]["shape"]["parameters"] == 134_515_008


def test_dynamic_sampling_is_bounded_and_expected():
    """At most 10 rounds of 8 prompts; at success rate 0.85 one group in 1.37 carries signal."""
    made = plan(replace(INPUTS, max_rounds=10, oversample=2.0))
    plain = plan(INPUTS)
    assert made.max_tokens_per_step == 10 * 8 * 8 * 64
    assert made.max_total_tokens == 16 * made.max_tokens_per_step
    assert (made.completions_per_step, plain.max_tokens_per_step) == (32, 4 * 8 * 64)
    (note,) = [each for each in made.notes if "dynamic sampling" in each]
    assert "at most 10 rounds" in note
    assert "1.2, 1, 1.4 times a step's own tokens" in note
    assert refill_factor(0.85, 8) == pytest.approx(1 / (1 - 0.85**8 - 0.15**8))
    assert refill_factor(1.0, 8) == float("inf")


def test_planning_needs_no_torch():
    code = "import sys, groupwise.planning; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"PYTHONPATH": str(Path(__file__).parents[2] / "src"), "PATH": "/usr/bin:/bin"},
    )
    assert done.stdout.strip() == "False"
