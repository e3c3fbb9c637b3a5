#!/bin/sh
# The packaged demo model from a safetensors folder: sh package.sh FOLDER OUT.gguf
# Formats were chosen by what each costs in agreement per byte (score.py); the n-gram table, the projections of the delta net and
# the embedding are sensitive, hyper-connections and the n-gram key are not. blk.8 is the drafting layer.
# Codes are rounded with error feedback over calibration.txt, which calibrate.py made with the model itself.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
"$here/../../strata" quantize "$1" "$2" --calibrate "$here/calibration.txt" --feedback \
    --type Q6_K --expert-type IQ4_XS --down-type IQ4_NL --embedding-type Q6_K \
    --tensor-type 'per_layer=Q5_0' --tensor-type 'ffn_gate_inp=BF16' --tensor-type 'attn_gate=Q5_K' \
    --tensor-type 'shexp\.=Q4_K' --tensor-type 'gate_inp_shexp=F32' --tensor-type 'ple_key=Q4_K' \
    --tensor-type 'ple_value=Q6_K' --tensor-type 'hc_.*down=Q4_K' --tensor-type 'hc_.*up=Q5_0' \
    --tensor-type 'hc_.*inject=Q8_0' --tensor-type 'indexer=Q4_K' \
    --tensor-type '[0-7]\.attn_(q|k|v|output)\.=Q5_K' \
    --tensor-type 'blk\.8\.ffn_(gate|up)_exps=IQ3_S' --tensor-type 'blk\.8\.ffn_down_exps=IQ4_NL' \
    --tensor-type 'blk\.8\.(attn|nextn.eh|.*shexp|indexer)=Q4_K' --tensor-type 'blk\.8\..*norm=F32' \
    --tensor-type 'blk\.8\.ffn_gate_inp=BF16'
