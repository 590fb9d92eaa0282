"""The log of llama.cpp's server, in the forms of several builds, and whatever else may stand in such a file."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specmeter.engines.llama_cpp.log import drafting_between, last_words, parse_load, parse_request
from specmeter.engines.llama_cpp.log_formats import log_time_ms
from specmeter.record import DeviceUse

LOAD = """\
0.00.001.833 I cmn  common_param: common_params_print_info: build 7310 (0c1e570) with GNU 12.2.0 for Linux x86_64
0.00.001.940 I cmn  common_param: system_info: n_threads = 2 (n_threads_batch = 4) / 8 | CPU : AVX2 = 1 | REPACK = 1 |
0.00.026.093 I load_tensors: loading model tensors, this can take a while... (load_mode = mmap)
0.00.030.000 I load_tensors: offloaded 20/33 layers to GPU
0.00.044.528 I load_tensors:   CPU_Mapped model buffer size =     100.50 MiB
0.00.044.529 I load_tensors:        CUDA0 model buffer size =  2000.00 MiB
0.00.044.530 I load_tensors: RPC0[10.0.0.2:50052] model buffer size =  300.00 MiB
0.00.045.436 I llama_context: n_ctx                 = 2048
0.00.045.437 I llama_context: n_batch               = 512
0.00.045.753 I llama_kv_cache:        CPU KV buffer size =     1.00 MiB
0.00.045.754 I llama_memory_recurrent:        CPU RS buffer size =     2.00 MiB
0.00.046.225 I llama_kv_cache: size =    1.00 MiB (2048 cells, 2 layers, 1/1 seqs), K (q8_0): 0.50 MiB, V (f16): 0.5 MiB
0.00.047.311 I resolve_fused_ops: Flash Attention enabled
0.00.047.664 I sched_reserve:        CPU compute buffer size =     3.00 MiB
0.00.047.665 I sched_reserve:        CPU compute buffer size =     4.00 MiB
0.00.061.470 I common_speculative_init_result: loading draft model 'draft.gguf'
0.00.062.768 I load_tensors: loading model tensors, this can take a while... (load_mode = none)
0.00.062.900 I load_tensors: offloaded 3/3 layers to GPU
0.00.062.938 I load_tensors:        CUDA0 model buffer size =     8.00 MiB
0.00.063.028 I llama_context: n_ctx                 = 1024
0.00.292.118 I srv    load_model: initializing, n_slots = 1, n_ctx_slot = 2048, kv_unified = 'false'
0.00.292.160 I spec common_specu: adding speculative implementation 'ngram-mod'
0.00.292.161 I spec common_specu: - n_match=24, n_max=64, n_min=48
0.00.292.168 I spec common_specu: adding speculative implementation 'draft-simple'
0.00.292.173 I spec common_specu: - n_max=3, n_min=0, p_min=0.750000
0.00.292.175 I spec common_specu: - gpu_layers=-1, cache_k=f16, cache_v=f16, ctx_tgt=yes, ctx_dft=yes, devices=[default]
0.00.292.200 W spec common_specu: synthetic speculative acceptance is enabled for benchmarking; generated output is not
"""

MIB = 1024 * 1024


def test_values_in_force() -> None:
    load = parse_load(LOAD)
    assert load.build == "7310 (0c1e570) with GNU 12.2.0 for Linux x86_64"
    assert load.system_info == "CPU : AVX2 = 1 | REPACK = 1"
    assert load.layers_offloaded == (20, 33)
    assert load.draft_layers_offloaded == (3, 3)
    expected = {
        "threads": 2,
        "batch_threads": 4,
        "n_ctx": 2048,
        "draft_n_ctx": 1024,
        "n_batch": 512,
        "kv_type_k": "q8_0",
        "kv_type_v": "f16",
        "flash_attention": "enabled",
        "load_mode": "mmap",
        "draft_load_mode": "none",
    }
    assert expected.items() <= load.resolved.items()
    assert load.resolved["method_parameters"]["ngram-mod"] == {"n_match": 24, "n_max": 64, "n_min": 48}
    assert load.resolved["method_parameters"]["draft-simple"]["p_min"] == 0.75
    assert len(load.warnings) == 1


def test_the_log_says_whether_loading_is_over() -> None:
    assert not parse_load(LOAD).complete
    assert parse_load(LOAD + "0.00.039.062 I srv          init: model loaded\n").complete
    assert parse_load("main: model loaded\n").complete
    assert parse_load("0.00.044.803 I srv  update_slots: all slots are idle\n").complete


def test_vocabularies_of_both_models() -> None:
    load = parse_load(
        "0.00.014.139 I print_info: n_vocab               = 151936\n"
        "0.00.071.000 I srv    load_model: loading draft model '/models/draft.gguf'\n"
        "0.00.071.641 I print_info: n_vocab               = 2048\n"
    )
    assert load.resolved["n_vocab"] == 151_936
    assert load.resolved["draft_n_vocab"] == 2048


def test_memory_by_device() -> None:
    load = parse_load(LOAD)
    assert load.devices == (
        DeviceUse(device="CPU_Mapped", model_buffer_bytes=round(100.5 * MIB)),
        DeviceUse(device="CUDA0", model_buffer_bytes=2000 * MIB),
        DeviceUse(device="RPC0[10.0.0.2:50052]", model_buffer_bytes=300 * MIB),
        DeviceUse(device="CPU", kv_buffer_bytes=3 * MIB, compute_buffer_bytes=4 * MIB),
    )
    assert load.draft_devices == (DeviceUse(device="CUDA0", model_buffer_bytes=8 * MIB),)


def test_a_failed_initialisation_is_a_warning() -> None:
    load = parse_load(
        "0.00.1 noise\n"
        "0.00.200.000 E spec common_specu: the target and draft vocabs are not compatible\n"
        "0.00.200.001 E srv load_model: failed to initialize speculative decoding context: draft model vocab\n"
    )
    assert [warning.split(":")[0].split()[0] for warning in load.warnings] == ["spec", "srv"]


def test_steps() -> None:
    request = parse_request("""\
0.01.000.000 I slot launch_slot_: id  0 | task 0 | processing task, is_child = 0
0.01.001.000 I slot   operator(): id  0 | task 0 | accepted  9/ 9 draft tokens
0.01.002.000 I slot      release: id  0 | task 0 | stop processing: n_tokens = 30, truncated = 0
1.02.003.000 I slot launch_slot_: id  0 | task 17 | processing task, is_child = 0
1.02.010.325 I slot   operator(): id  0 | task 17 | accepted  0/ 3 draft tokens
1.02.020.500 I slot   operator(): id  0 | task 17 | accepted 12/16 draft tokens
""")
    assert not request.complete
    assert [(step.drafted, step.accepted) for step in request.steps] == [(3, 0), (16, 12)]
    assert [round(step.at_ms, 3) for step in request.steps] == [7.325, 17.5]


def test_a_restore_and_its_replay_add_up_to_the_counters() -> None:
    """4 drafted, 2 accepted; the replay runs the 2 and the corrected token: 2 forwards, 4 tokens = 2 + 2."""
    request = parse_request("""\
0.01.000.000 I slot launch_slot_: id  0 | task 0 | processing task, is_child = 0
0.01.010.000 I slot   operator(): id  0 | task 0 | accepted  2/ 4 draft tokens (restore checkpoint)
0.01.020.000 I slot   operator(): id  0 | task 0 | accepted  3/ 3 draft tokens
0.01.030.000 I slot   operator(): id  0 | task 0 | accepted  0/ 4 draft tokens (restore checkpoint)
0.01.040.000 I slot   operator(): id  0 | task 0 | accepted  1/ 1 draft tokens
0.01.050.000 I slot   operator(): id  0 | task 0 | accepted  4/ 4 draft tokens
0.01.060.000 I slot      release: id  0 | task 0 | stop processing: n_tokens = 30, truncated = 0
""")
    assert request.complete
    assert [(step.drafted, step.accepted, step.restored) for step in request.steps] == [
        (4, 2, True),
        (0, 0, False),
        (4, 0, True),
        (0, 0, False),
        (4, 4, False),
    ]


def test_a_replay_that_is_restored_again_counts_its_draft_once() -> None:
    request = parse_request("""\
I slot launch_slot_: id  0 | task 0 | processing task
accepted  3/ 4 draft tokens (restore checkpoint)
accepted  1/ 4 draft tokens (restore checkpoint)
accepted  2/ 2 draft tokens
accepted  1/ 8 draft tokens (restore checkpoint)
""")
    assert [(step.drafted, step.accepted, step.restored) for step in request.steps] == [
        (4, 1, True),
        (0, 0, True),
        (0, 0, False),
        (8, 0, True),
    ]


def test_timestamps() -> None:
    assert log_time_ms("12.34.567.890 I x") == (12 * 60 + 34) * 1000 + 567.890
    assert log_time_ms("slot launch") is None


def test_last_words_prefer_what_is_serious() -> None:
    log = "0.00.000.001 I fine\n" * 50 + "0.00.000.002 E srv: failed to load\n0.00.000.003 I bye\n"
    assert last_words(log) == ("srv: failed to load",)
    assert last_words("one\ntwo\n\n") == ("one", "two")
    assert last_words("") == ()


@given(st.text(alphabet="0123456789.IWE acepted/draft tokens(restore checkpoint)\nbuffer size=MiB-'", max_size=400))
def test_any_text_is_read(text: str) -> None:
    parse_load(text)
    parse_request(text)
    assert all(len(line) <= 400 for line in last_words(text))


# --- the server's statistics -----------------------------------------------------------------------------------------

STATISTICS = """\
0.00.143.729 I slot launch_slot_: id  0 | task 2 | processing task, is_child = 0
0.02.786.910 I spec common_specu: statistics     draft-simple: #calls(b,g,a) =    1     46     46, #gen drafts = 46, \
#acc drafts =    26, #gen tokens =    179, #acc tokens =    81, #mean acc len = 2.76, #acc rate/pos = (0.565, 0.435), \
dur(b,g,a) = 0.007, 29.179, 0.020 ms
0.02.786.911 I spec common_specu: statistics     ngram-mod: #calls(b,g,a) =    1    126      0, #gen drafts =      0, \
#acc drafts =     0, #gen tokens =      0, #acc tokens =     0, dur(b,g,a) = 0.000, 0.155, 0.000 ms
0.02.786.931 I slot      release: id  0 | task 2 | stop processing: n_tokens = 182, truncated = 0
"""


def test_statistics_of_one_request_are_what_they_grew_by():
    first = parse_request(STATISTICS).totals
    assert [drafting.method for drafting in drafting_between({}, first)] == ["draft-simple", "ngram-mod"]
    later = parse_request(STATISTICS.replace("1     46     46", "3     90     90").replace("29.179", "70.593")).totals
    draft, ngram = drafting_between(first, later)
    assert (draft.calls, round(draft.generate_ms, 6), draft.accept_ms) == (44, 41.414, 0)
    assert (ngram.calls, ngram.generate_ms) == (0, 0)


def test_statistics_of_a_server_that_was_started_anew_count_from_zero():
    earlier = parse_request(STATISTICS.replace("1     46     46", "9    500    500")).totals
    assert drafting_between(earlier, parse_request(STATISTICS).totals)[0].generate_ms == 29.179


@given(st.text(alphabet="0123456789. ,ms", max_size=60))
def test_statistics_that_make_no_sense_do_no_harm(times: str):
    log = parse_request(STATISTICS.replace("0.007, 29.179, 0.020 ms", times))
    assert all(drafting.generate_ms >= 0 for drafting in drafting_between({}, log.totals))
