// What a llama.cpp build's CUDA backend answers about one tensor: bytes in a buffer, whether an operation runs on the
// GPU, and whether it is worth moving there. An NVIDIA card of the Ada generation or newer, default build options.
#pragma once

#include <cstddef>

#include "ggml.h"

namespace cuda_rules {

constexpr size_t ALIGNMENT = 128;       // of every tensor in a device buffer
constexpr int    ROW_MULTIPLE = 512;    // elements; the last row of a quantised tensor is padded to it
constexpr int    CACHE_STRIDE = 256;    // flash attention's fast kernels want a number of cells divisible by it
constexpr int    OFFLOAD_BATCH = 32;    // smallest batch for which weights in host memory are copied to the GPU

// Row look-ups of K- and I-quants run on the GPU in every build measured so far. The cells in tests/data/cases were made
// without them, so that is the default here and the files compare; what it moves is the pinned or plain host buffer of
// the token table, and the copy of a tied one that is kept beside it when the output is on the host too.
void look_up_all_types(bool yes);

size_t alloc_size(const ggml_tensor * tensor);
bool   supports(const ggml_tensor * op);
bool   offloads(const ggml_tensor * op);

}  // namespace cuda_rules
