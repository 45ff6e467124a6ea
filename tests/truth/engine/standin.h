// Stand-in GPUs for ggml: devices that answer the loader's, scheduler's and allocator's questions as CUDA devices do,
// and neither hold nor compute anything.
#pragma once

#include <cstddef>
#include <vector>

#include "ggml-backend.h"

namespace standin {

constexpr int MAX_DEVICES = 4;

// Registers MAX_DEVICES devices named FAKE0, FAKE1, ... Call once, before the first model is loaded.
void register_devices();

// Sets the free memory of the first devices, in bytes, and returns them; the list ends with a null pointer, so that it
// can be given to the engine as it is. An empty `free_bytes` leaves the engine without a GPU.
std::vector<ggml_backend_dev_t> devices(const std::vector<size_t> & free_bytes);

}  // namespace standin
