#!/bin/sh
# The last step of package.sh: sh refine.sh FOLDER BASE.gguf OUT.gguf. What it writes depends on the folder alone, so the packaged
# file can be BASE too: all but a few codes come out as they are.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/../../src${PYTHONPATH:+:$PYTHONPATH}"
formats() { # PATTERN FORMAT WORD...: PATTERN with each word in the place of %
    pattern=$1 format=$2
    shift 2
    for word; do printf '%s.weight=%s ' "$(printf %s "$pattern" | sed "s/%/$word/")" "$format"; done
}
# shellcheck disable=SC2046
"${PYTHON:-python3}" "$here/refine.py" "$1" "$2" "$3" "$here/calibration.txt" \
    $(formats blk.8.ffn_%_exps IQ2_XXS gate up) blk.8.ffn_down_exps.weight=Q2_0 \
    $(formats blk.8.% Q3_K attn_q attn_k attn_v attn_output nextn.eh_proj) \
    $(formats blk.%.ffn_down_exps Q5_0 0 1 2 4) $(formats blk.%.attn_qkv Q8_0 0 1 2 4) \
    $(formats blk.%.ssm_conv1d BF16 0 1 2 4 5 6) blk.1.ple_conv1d.weight=BF16
