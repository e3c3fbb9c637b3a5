#!/bin/sh
# The packaged demo model from a safetensors folder: sh package.sh FOLDER OUT.gguf [SmolLM2-135M-Instruct.Q4_1.gguf]
# Formats were chosen by what each costs in agreement per byte (score.py); the n-gram table, the projections of the delta net and
# the embedding are sensitive, hyper-connections and the n-gram key are not. blk.8 is the drafting layer.
# Codes are rounded with error feedback over calibration.txt, which calibrate.py made with the model itself.
# With the demo's teacher as a third argument, some are then moved by distillation over new text: 30 minutes on an H200. At last
# bytes that drafts hardly miss go from the drafting layer to matrices of the trunk (refine.sh: a few minutes, no GPU).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
start=$2
[ $# -lt 3 ] || start=$2.start.gguf
"$here/../../strata" quantize "$1" "$start" --calibrate "$here/calibration.txt" --feedback \
    --type Q6_K --expert-type IQ4_XS --down-type IQ4_NL --embedding-type Q6_K \
    --tensor-type 'per_layer=Q5_0' --tensor-type 'ffn_gate_inp=BF16' --tensor-type 'attn_gate=Q5_K' \
    --tensor-type 'shexp\.=Q4_K' --tensor-type 'gate_inp_shexp=F32' --tensor-type 'ple_key=Q4_K' \
    --tensor-type 'ple_value=Q6_K' --tensor-type 'hc_.*down=Q4_K' --tensor-type 'hc_.*up=Q5_0' \
    --tensor-type 'hc_.*inject=Q8_0' --tensor-type 'indexer=Q4_K' \
    --tensor-type '[0-7]\.attn_(q|k|v|output)\.=Q5_K' \
    --tensor-type 'blk\.8\.ffn_(gate|up)_exps=IQ3_S' --tensor-type 'blk\.8\.ffn_down_exps=IQ4_NL' \
    --tensor-type 'blk\.8\.(attn|nextn.eh|.*shexp|indexer)=Q4_K' --tensor-type 'blk\.8\..*norm=F32' \
    --tensor-type 'blk\.8\.ffn_gate_inp=BF16'
[ $# -ge 3 ] || exit 0
export PYTHONPATH="$here/../../src${PYTHONPATH:+:$PYTHONPATH}"
python=${PYTHON:-python3}
"$python" "$here/adapt.py" plan "$1" "$start" "$2.plan.npz"
"$python" "$here/fresh.py" "$3" "$1" "$2.1.npz" 2001 75 30
"$python" "$here/fresh.py" "$3" "$1" "$2.2.npz" 2002 75 30
RATE=0.004 SCALE_RATE=3e-4 SMALL_RATE=2e-4 ROUTER_RATE=2e-4 \
    "$python" "$here/adapt.py" run "$1" "$start" "$2.plan.npz" "$2.half.gguf" 535 "$2.1.npz" "$2.2.npz"
SEED=8 "$python" "$here/adapt.py" run "$1" "$2.half.gguf" "$2.plan.npz" "$2.most.gguf" 285 "$2.1.npz" "$2.2.npz"
"$python" "$here/fresh.py" "$3" "$1" "$2.3.npz" 2003 75 30
"$python" "$here/adapt.py" run "$1" "$2.most.gguf" "$2.plan.npz" "$2.base.gguf" 427 "$2.3.npz"
sh "$here/refine.sh" "$1" "$2.base.gguf" "$2"
rm "$start" "$2.half.gguf" "$2.most.gguf" "$2.base.gguf" "$2.plan.npz" "$2.1.npz" "$2.2.npz" "$2.3.npz"
