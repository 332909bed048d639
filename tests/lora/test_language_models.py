"""Folders of transformers merged with everything beside their weights; LoRA adapters compared with peft itself."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest
import torch

from brickwork import lora
from brickwork.algebra.recipe import make_recipe
from brickwork.algebra.streaming import merge_files
from brickwork.errors import BadFile, BadModel, BrickworkError, RequestError
from brickwork.zoo.torchvision_shim import import_torchvision

import_torchvision()  # which transformers and peft import
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
WORDS = ["<unk>", "<s>", "</s>", "a", "brick", "on", "another", "."]
TEXT = "a brick on another ."


@pytest.fixture(scope="module")
def llamas(tmp_path_factory):
    """A base and two models trained from it, say: sharded bf16, with a tokenizer, a template and more."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    root = tmp_path_factory.mktemp("llamas")
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=32,
        tie_word_embeddings=False,
    )
    tokenizer = Tokenizer(models.WordLevel({word: k for k, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    fast.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    torch.manual_seed(0)
    base = transformers.LlamaForCausalLM(config)
    for number, name in enumerate(("base", "one", "two")):
        torch.manual_seed(number)
        model = transformers.LlamaForCausalLM(config)
        state = {k: v + 0.02 * number * torch.randn_like(v) for k, v in base.state_dict().items()}
        model.load_state_dict(state)
        model.generation_config.max_new_tokens = 5 + number
        model.to(torch.bfloat16).save_pretrained(root / name, max_shard_size="8KB")
        fast.save_pretrained(root / name)
        (root / name / "extra").mkdir()
        (root / name / "extra" / "notes.json").write_text(json.dumps({"of": name}))
        torch.save({"step": 1}, root / name / "optimizer.pt")
    assert len(list((root / "one").glob("*.safetensors"))) > 1
    return root


METHODS = {
    "linear": {},
    "slerp": {"t": 0.4},
    "ties": {"density": 0.5},
    "dare": {"density": 0.5},
    "della": {"density": 0.5},
}


@pytest.mark.parametrize("method", METHODS)
def test_a_merged_folder_loads_with_auto_model_and_auto_tokenizer(llamas, tmp_path, run, method):
    words = ["merge", llamas / "one", llamas / "two", "--method", method, "--out", tmp_path / "m"]
    words += [w for name, value in METHODS[method].items() for w in ("--arg", f"{name}={value}")]
    words += ["--base", llamas / "base"] if method in ("ties", "dare", "della") else []
    code, out, err = run(*words, "--json")
    assert code == 0, err
    report = json.loads(out)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    assert model.dtype == torch.bfloat16 and type(model).__name__ == "LlamaForCausalLM"
    assert model.generation_config.max_new_tokens == 6  # of the first
    tokens = tokenizer(TEXT, return_tensors="pt")
    assert tokens["input_ids"].tolist() == [[3, 4, 5, 6, 7]]
    assert tokenizer.apply_chat_template([{"role": "user", "content": "a brick"}], tokenize=False) == "a brick"
    assert torch.isfinite(model(input_ids=tokens["input_ids"]).logits).all()
    parents = [transformers.AutoModelForCausalLM.from_pretrained(llamas / name).state_dict() for name in ("one", "two")]
    if method == "linear":
        for name, value in model.state_dict().items():
            mean = (parents[0][name].float() + parents[1][name].float()) / 2
            assert torch.equal(value, mean.to(torch.bfloat16)), name
    else:
        assert any(not torch.equal(value, parents[0][name]) for name, value in model.state_dict().items())
    assert json.loads((tmp_path / "m" / "extra" / "notes.json").read_text()) == {"of": "one"}
    assert "tokenizer.json" in report["copied"] and report["left_out"] == ["optimizer.pt"]
    assert not (tmp_path / "m" / "optimizer.pt").exists()
    card = (tmp_path / "m" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\npipeline_tag: text-generation\n")
    assert run(*words)[0] == 2  # is there already
    assert run(*words, "--force")[0] == 0
    (tmp_path / "m" / "mine.txt").write_text("notes")
    code, _, err = run(*words, "--force")
    assert code == 2 and "mine.txt" in err


def request(models, **more):
    return make_recipe({"method": "linear", "models": [str(m) for m in models], "options": {}, **more}, name="test")


def test_a_link_out_of_the_folder_is_refused(llamas, tmp_path):
    shutil.copytree(llamas / "one", tmp_path / "one")
    (tmp_path / "secret").write_text("private")
    os.symlink(tmp_path / "secret", tmp_path / "one" / "tokenizer_extra.json")
    with pytest.raises(BadFile, match="outside the folder"):
        merge_files(request([tmp_path / "one", llamas / "two"]), tmp_path / "m", progress=False)
    (tmp_path / "one" / "tokenizer_extra.json").unlink()
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "one" / "linked")
    with pytest.raises(BadFile, match="outside the folder"):
        merge_files(request([tmp_path / "one", llamas / "two"]), tmp_path / "m", progress=False)
    assert not (tmp_path / "m").exists()


def test_different_tokenizers_are_told(llamas, tmp_path, run):
    shutil.copytree(llamas / "two", tmp_path / "two")
    text = (tmp_path / "two" / "tokenizer.json").read_text()
    (tmp_path / "two" / "tokenizer.json").write_text(text.replace('"brick"', '"stone"'))
    code, out, _ = run("merge", llamas / "one", tmp_path / "two", "--out", tmp_path / "m")
    assert code == 0 and "have different tokenizers" in out
    code, out, _ = run("merge", llamas / "one", llamas / "two", "--out", tmp_path / "n")
    assert code == 0 and "have different tokenizers" not in out


def adapter(llamas, folder, seed, **config):
    """A trained adapter of peft, say: its B is not zero."""
    base = transformers.AutoModelForCausalLM.from_pretrained(llamas / "base", dtype=torch.float32)
    given = {"r": 4, "lora_alpha": 6, "target_modules": ["q_proj", "down_proj"], "lora_dropout": 0.1, **config}
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **given))
    torch.manual_seed(seed)
    for name, value in model.named_parameters():
        if "lora_" in name or "modules_to_save" in name:
            torch.nn.init.normal_(value, std=0.1)
    model.save_pretrained(folder)
    return folder


def weights_with(llamas, folder):
    """The base's weights with an adapter inside, as peft puts it there."""
    base = transformers.AutoModelForCausalLM.from_pretrained(llamas / "base", dtype=torch.float32)
    return peft.PeftModel.from_pretrained(base, folder).merge_and_unload().state_dict()


CONFIGS = {
    "plain": {},
    "rslora": {"use_rslora": True},
    "patterns": {"rank_pattern": {"down_proj": 2, "layers.1.self_attn.q_proj": 3}, "alpha_pattern": {"q_proj": 9}},
    "head": {"modules_to_save": ["lm_head"]},
}


@pytest.fixture(scope="module")
def base32(llamas, tmp_path_factory):
    """The base in float32 in one file, so that nothing is rounded."""
    folder = tmp_path_factory.mktemp("base32") / "base"
    model = transformers.AutoModelForCausalLM.from_pretrained(llamas / "base", dtype=torch.float32)
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", CONFIGS)
def test_baked_weights_are_those_of_peft(llamas, base32, tmp_path, kind):
    own = adapter(llamas, tmp_path / "adapter", 1, **CONFIGS[kind])
    lora.bake(base32, own, tmp_path / "baked", progress=False)
    found = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "baked").state_dict()
    wanted = weights_with(llamas, own)
    before = transformers.AutoModelForCausalLM.from_pretrained(base32).state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.allclose(found[n], wanted[n], atol=1e-6) for n in wanted)
    assert sum(not torch.equal(found[n], before[n]) for n in found) == (5 if kind == "head" else 4)


def test_baking_into_sharded_bf16_rounds_once_and_keeps_the_tokenizer(llamas, tmp_path, run):
    own = adapter(llamas, tmp_path / "adapter", 1)
    code, out, err = run("lora", "bake", llamas / "base", own, "--out", tmp_path / "baked")
    assert code == 0 and "4 layers changed" in out, err
    found = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "baked").state_dict()
    assert all(torch.equal(found[n], v.to(torch.bfloat16)) for n, v in weights_with(llamas, own).items())
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "baked")(TEXT)["input_ids"] == [3, 4, 5, 6, 7]
    assert run("lora", "bake", llamas / "base", own, "--out", tmp_path / "baked")[0] == 2
    assert run("lora", "bake", llamas / "base", own, "--out", tmp_path / "baked", "--force")[0] == 0


def change(llamas, folder):
    before = transformers.AutoModelForCausalLM.from_pretrained(llamas / "base", dtype=torch.float32).state_dict()
    return {n: v - before[n] for n, v in weights_with(llamas, folder).items()}


def test_adapters_are_merged_by_their_products(llamas, tmp_path, run):
    one = adapter(llamas, tmp_path / "one", 1)
    two = adapter(llamas, tmp_path / "two", 2, r=2, use_rslora=True, target_modules=["q_proj", "v_proj"])
    words = ("lora", "merge", one, two, "--weight", "0.7", "--weight", "0.3", "--out", tmp_path / "both")
    code, out, err = run(*words, "--json")
    assert code == 0 and json.loads(out)["rank"] == 6 and json.loads(out)["layers"] == 6, err
    changes = [change(llamas, folder) for folder in (one, two, tmp_path / "both")]
    for name in changes[0]:
        assert torch.allclose(changes[2][name], 0.7 * changes[0][name] + 0.3 * changes[1][name], atol=1e-6), name
    assert run(*words)[0] == 2 and run(*words, "--force")[0] == 0
    assert "library_name: peft" in (tmp_path / "both" / "README.md").read_text()


def test_a_shorter_merge_is_the_best_of_its_rank(llamas, tmp_path):
    folders = [adapter(llamas, tmp_path / str(k), k) for k in (1, 2)]
    lora.merge(folders, tmp_path / "exact")
    lora.merge(folders, tmp_path / "short", rank=3)
    exact, short = (change(llamas, tmp_path / name) for name in ("exact", "short"))
    for name, value in exact.items():
        if value.any():
            u, s, vt = torch.linalg.svd(value.double())
            best = (u[:, :3] * s[:3]) @ vt[:3]
            assert torch.linalg.matrix_rank(short[name].double(), tol=1e-4) == 3
            assert torch.allclose(short[name].double(), best, atol=1e-5), name


def test_an_adapter_extracted_of_a_baked_model_is_the_adapter(llamas, base32, tmp_path, run):
    own = adapter(llamas, tmp_path / "adapter", 1)
    lora.bake(base32, own, tmp_path / "baked", progress=False)
    code, out, err = run(
        "lora", "extract", tmp_path / "baked", base32, "--rank", "4", "--out", tmp_path / "again", "--json"
    )
    assert code == 0, err
    report = json.loads(out)
    assert report["layers"] == 4 and report["explained"] == pytest.approx(1, abs=1e-5) and report["left_out"] == []
    wanted, found = change(llamas, own), change(llamas, tmp_path / "again")
    assert all(torch.allclose(found[n], wanted[n], atol=1e-5) for n in wanted)


def test_what_an_extraction_leaves_out_is_told(llamas, tmp_path):
    found = lora.extract(llamas / "one", llamas / "base", tmp_path / "a", rank=2, progress=False)
    assert 0 < found.facts["explained"] < 1
    assert "model.norm.weight" in found.facts["left_out"] and "model.embed_tokens.weight" in found.facts["left_out"]
    assert "without what changed in" in str(found)


def test_factors_are_not_averaged_one_by_one(llamas, tmp_path, run):
    folders = [adapter(llamas, tmp_path / str(k), k) / "adapter_model.safetensors" for k in (1, 2)]
    code, _, err = run("merge", *folders, "--out", tmp_path / "m")
    assert code == 2 and "is a factor of a LoRA" in err and "brickwork lora merge" in err
    assert not (tmp_path / "m").exists()


def test_refusals(llamas, base32, tmp_path, run):
    own = adapter(llamas, tmp_path / "adapter", 1)
    with pytest.raises(RequestError, match="two adapters or more"):
        lora.merge([own], tmp_path / "m")
    with pytest.raises(RequestError, match="3 weights for 2 adapters"):
        lora.merge([own, own], tmp_path / "m", weight=[1, 1, 1])
    with pytest.raises(BadFile, match="is no LoRA adapter of peft"):
        lora.bake(base32, llamas / "one", tmp_path / "m")
    with pytest.raises(BadModel, match="nothing to extract"):
        lora.extract(base32, base32, tmp_path / "m", progress=False)
    head = adapter(llamas, tmp_path / "head", 1, modules_to_save=["lm_head"])
    with pytest.raises(BadModel, match=r"whole tensors, too \(lm_head\.weight\)"):
        lora.merge([own, head], tmp_path / "m")
    with pytest.raises(RequestError, match="bake it with alpha 1"):
        lora.bake(base32, head, tmp_path / "m", alpha=0.5)
    dora = adapter(llamas, tmp_path / "dora", 1, use_dora=True)
    with pytest.raises(BadFile, match="use_dora"):
        lora.merge([own, dora], tmp_path / "m")
    config = json.loads((own / "adapter_config.json").read_text())
    for wrong in ({"r": 3}, {"r": "x"}, {"peft_type": "IA3"}):
        shutil.copytree(own, tmp_path / "wrong")
        (tmp_path / "wrong" / "adapter_config.json").write_text(json.dumps({**config, **wrong}))
        with pytest.raises(BrickworkError):
            lora.bake(base32, tmp_path / "wrong", tmp_path / "m")
        shutil.rmtree(tmp_path / "wrong")
    assert not (tmp_path / "m").exists()


def test_alpha_scales_the_adapter(llamas, base32, tmp_path):
    own = adapter(llamas, tmp_path / "adapter", 1)
    wanted = change(llamas, own)
    lora.bake(base32, own, tmp_path / "half", alpha=0.5, progress=False)
    before = transformers.AutoModelForCausalLM.from_pretrained(base32).state_dict()
    found = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "half").state_dict()
    assert all(np.allclose(found[n] - before[n], 0.5 * wanted[n], atol=1e-6) for n in wanted)


def test_an_adapter_of_a_network_that_keeps_weights_turned_is_read_by_peft(tmp_path):
    """GPT-2 keeps (in, out); of a square matrix nothing but the network's name tells."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=11, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    net = transformers.GPT2LMHeadModel(config).eval()
    net.save_pretrained(tmp_path / "base")
    with torch.no_grad():
        for name, weight in net.named_parameters():
            if name.endswith(("c_attn.weight", "c_proj.weight")):
                weight += 0.1 * torch.randn_like(weight)
    net.save_pretrained(tmp_path / "tuned")
    lora.extract(tmp_path / "tuned", tmp_path / "base", tmp_path / "adapter", rank=8, progress=False)
    base = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "base")
    read, ids = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval(), torch.tensor([[1, 2, 3, 4]])
    torch.testing.assert_close(read(ids).logits, net(ids).logits, atol=1e-4, rtol=1e-4)
    lora.bake(tmp_path / "base", tmp_path / "adapter", tmp_path / "baked", progress=False)
    baked = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "baked")
    torch.testing.assert_close(baked(ids).logits, net(ids).logits, atol=1e-4, rtol=1e-4)
