// What a GPU asks of the CPU and what it gets back, in host memory that both see. Beside this head lie three arrays:
//     ids      int32 [most rows * most top_k]      -1 where the GPU computes the entry itself
//     x        float [most rows, hidden]           the rows' activations
//     answers  float [most rows * most top_k, hidden]
// Read by the device kernels too (device/rendezvous.h): no standard headers but stdint.h.
#pragma once

#include <stdint.h>

namespace strata {

// Every part has one writer and lies in lines of its own.
struct Mailbox {
    // The GPU's: `request` is written last, and counts up.
    alignas(128) int64_t request;
    int64_t layer, rows, top_k;
    // The CPU's: the last request whose answers are there, and whether it could not be computed.
    alignas(128) int64_t reply;
    int64_t failed;
    // The GPU's: the request that it gave up waiting for, or 0.
    alignas(128) int64_t poison;
};

}  // namespace strata
