"""Rows of the table of bad calls of rotary_from_config: (changes, error, pattern)."""

from __future__ import annotations

from refusals import changes

BAD = changes(
    """
config=None -> TypeError: config: got NoneType; expected a dict
config="llama" -> TypeError: config: got str; expected a dict
config=[1] -> TypeError: config: got list; expected a dict
config=Tensor() -> TypeError: config: got a torch Tensor
config={} -> ValueError: config: says nothing of a rotary encoding; expect
config={"head_dim": 8} -> ValueError: config: says nothing of …rope_theta
rope_theta="1" -> TypeError: config: base: got str; expected a real number
rope_theta=0 -> ValueError: config: base: got 0.0; expected a positive
head_dim=8.0 -> TypeError: config: its head_dim: got float; expected an int
head_dim=0 -> ValueError: config: its head_dim: got 0; expected an integer
head_dim=7 -> ValueError: config: dim: got 7; expected an even number
head_dim=None -> ValueError: config: says neither head_dim nor both hidden
head_dim=None, hidden_size=8, num_attention_heads=0 -> ValueError: config: its
    num_attention_heads: got 0; expected an integer of at least 1
rotary_dim=3 -> ValueError: config: dim: got 3; expected an even number
partial_rotary_factor=1.5 -> ValueError: config: its partial_rotary_factor: got 1.5;
    expected a number from 0 to 1
rope_interleave=1 -> TypeError: config: its rope_interleave: got int; expec
rope_scaling=[1] -> TypeError: config: its rope_parameters are list; expect
rope_scaling={"rope_type": "spiral"} -> ValueError: config: its rope_type is 'spiral';
    expected one of 'default', 'linear', 'd
rope_scaling={"rope_type": 7} -> ValueError: config: its rope_type is 7; expected one of
    'default'
rope_scaling={"rope_type": "axial"} -> ValueError: config: its rope_type is 'axial', of
    a grid; …axial_angles
rope_scaling={"type": "linear"} -> TypeError: config: scaling: factor of linear: got
    NoneType; expected a real number
rope_scaling={"type": "dynamic", "factor": 2.0} -> ValueError: config: scaling: got no
    'original_max_position_embeddings'; 'dynamic' needs
rope_scaling={"type": "llama3", "factor": 2.0} -> ValueError: config: scaling: got no
    'low_freq_factor'; 'llama3' needs it
rope_scaling={"type": "yarn"}, max_position_embeddings=-1 -> ValueError: config:
    scaling: …: got -1.0; expected a positive number
model_type="dinov3_vit" -> ValueError: config: its model_type is 'dinov3_vit', of a
    grid; expected one of a sequence (axial_angles
model_type="eomt_dinov3" -> ValueError: config: its model_type is 'eomt_dinov3', of a gr
model_type="llama4_vision_model" -> ValueError: config: …, of a grid
model_type="falcon", alibi=True -> ValueError: config: its alibi is set; expected a
    model that rotates
model_type="granitemoehybrid", position_embedding_type="nope" -> ValueError: config: its
    position_embedding_type is 'nope'; expected a model that rotates
model_type="olmo_hybrid", rope_theta=None, rope_parameters={"rope_theta": None} ->
    ValueError: config: its rope_theta is None; expected a model that rotates
model_type="cohere2", layer_type="full_attention" -> ValueError: layer_type: got
    'full_attention', without a rotary encoding in cohere2; expected 'sliding_attention'
model_type="lara_mini", layer_type="full_attention" -> ValueError: layer_type: got
    'full_attention', without a rotary encoding in lara_mini; expected
model_type="exaone4", sliding_window=4096, layer_type="full_attention" -> ValueError:
    layer_type: got 'full_attention', without a rotary encoding in exaone4; expected
model_type="exaone_moe", sliding_window=128, layer_type="full_attention" -> ValueError:
    layer_type: got 'full_attention', without a rotary encoding in exaone_moe; expected
model_type=["falcon"], rope_theta=0 -> ValueError: config: base: got 0.0; expected a
layer_type=3 -> TypeError: layer_type: got int; expected a str
layer_type="slidin", layer_types=["full_attention"] -> ValueError: layer_type: got
    'slidin'; expected one of 'full_attention', as the layers
rope_local_base_freq=1e4 -> ValueError: layer_type: got None; expected one of
    'full_attention', 'sliding_attention'
rope_parameters={"main": {}, "compress": {}, "none": None} -> ValueError: layer_type:
    got None; expected one of 'main', 'compress', as the layers
compress_rope_theta=1.6e5 -> ValueError: layer_type: got None; expected one of 'main',
    'compress', as the layers
layer_rope_theta=3 -> TypeError: config: its layer_rope_theta: got int; expected a list
rope_scaling={"type": "linear", "factor": 2.0}, rope_scaling_layers=3 -> TypeError:
    config: its rope_scaling_layers: got int; expected a list
rope_scaling={"rope_type": "linear", "type": [], "factor": 2.0}, model_type="llama" ->
    ValueError: config: its rope_type is 'linear', and its type []; expected one
layer_types=[[1]], layer_type="main" -> ValueError: layer_type: got 'main'; expected one
seq_len=0 -> ValueError: seq_len: got 0; expected an integer of at least 1
seq_len=9.0 -> TypeError: seq_len: got float; expected an integer
""",
    globals(),
)
