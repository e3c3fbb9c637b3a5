// The block formats: bytes -> codes, scales and minima, one struct per format. Plain C++ without the standard library,
// so that a device compiler can read it too.
//
//     block, bytes   values and bytes of a block
//     sub            values that share a scale
//     offset         codes are stored unsigned: code = w_int + offset
//     minima         whether a value is scale * w_int - minimum
//     decode(b, codes, scale, minimum)
//                    codes [block] in order, scale [block / sub], minimum the same (untouched without minima)
//
// Layouts and the written order of scales: quant/decode_{legacy,k,iq}.py, which these functions must equal to the bit.
#pragma once

#include "blocks_iq.h"
#include "blocks_k.h"
#include "blocks_legacy.h"
