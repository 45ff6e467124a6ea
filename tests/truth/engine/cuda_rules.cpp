#include "cuda_rules.h"

#include <initializer_list>

// 1 where the default build of the CUDA backend has flash-attention kernels only for keys and values of one type, and
// none for q4_1, q5_0 and q5_1. Set by the build script from what it finds in the source.
#ifndef TRUTH_FLASH_ATTN_ONE_TYPE
#define TRUTH_FLASH_ATTN_ONE_TYPE 0
#endif

namespace cuda_rules {
namespace {

struct Attention {
    const ggml_tensor * q;
    const ggml_tensor * k;
    const ggml_tensor * v;
    const ggml_tensor * mask;

    explicit Attention(const ggml_tensor * op) : q(op->src[0]), k(op->src[1]), v(op->src[2]), mask(op->src[3]) {}

    int64_t queries_per_key() const { return q->ne[2] / k->ne[2]; }
    bool    whole_strides() const { return k->ne[1] % CACHE_STRIDE == 0; }
};

bool has_kernel_for(ggml_type type) {
    switch (type) {
        case GGML_TYPE_F32:
        case GGML_TYPE_F16:
        case GGML_TYPE_BF16:
        case GGML_TYPE_Q4_0:
        case GGML_TYPE_Q8_0:
            return true;
        case GGML_TYPE_Q4_1:
        case GGML_TYPE_Q5_0:
        case GGML_TYPE_Q5_1:
            return !TRUTH_FLASH_ATTN_ONE_TYPE;
        default:
            return false;
    }
}

// Several query heads that share a key head are handled together. Without ALiBi, which is stored as the second parameter.
bool shares_keys(const ggml_tensor * op, const Attention & a) {
    const float max_bias = reinterpret_cast<const float *>(op->op_params)[1];
    if (a.queries_per_key() < 2 || a.mask == nullptr || max_bias != 0.0f || !a.whole_strides()) {
        return false;
    }
    for (const ggml_tensor * t : {a.q, a.k, a.v, a.mask}) {
        for (int i = 1; i < GGML_MAX_DIMS && !ggml_is_quantized(t->type); ++i) {
            if (t->nb[i] % 16 != 0) {
                return false;
            }
        }
    }
    return true;
}

bool flash_attention_runs(const ggml_tensor * op) {
    const Attention a(op);
    const int64_t size_k = a.k->ne[0];
    const int64_t size_v = a.v->ne[0];
    const int64_t group  = a.queries_per_key();
    switch (size_k) {
        case 40: case 64: case 72: case 80: case 96: case 112: case 128: case 256:
            if (size_v != size_k) { return false; }
            break;
        case 192:
            if (size_v != 128 || !shares_keys(op, a) || group % 8 != 0) { return false; }
            break;
        case 320:
            if (size_v != 256 || !shares_keys(op, a) || group % 32 != 0) { return false; }
            break;
        case 512:
            if (size_v != 512 || !shares_keys(op, a)) { return false; }
            break;
        case 576:
            if (size_v != 512 || !shares_keys(op, a)) { return false; }
            break;
        default:
            return false;
    }
    if (TRUTH_FLASH_ATTN_ONE_TYPE && a.k->type != a.v->type) {
        return false;
    }
    return has_kernel_for(a.k->type) && has_kernel_for(a.v->type) && (a.mask == nullptr || a.mask->ne[2] == 1);
}

// One or two tokens at a time read a quantised cache as it is, if it is all q4_0 or all q8_0 (GGML_CUDA_FA_QUANTS by
// default); every other kernel wants f16 keys and values and keeps the converted copies behind the result.
bool reads_cache_as_it_is(const Attention & a) {
    const int64_t size     = a.q->ne[0];
    const bool    compiled = a.k->type == a.v->type && (a.k->type == GGML_TYPE_Q4_0 || a.k->type == GGML_TYPE_Q8_0);
    return compiled && size <= 256 && size % 64 == 0 && size != 192 && a.whole_strides() && a.q->ne[1] <= 2;
}

size_t flash_attention_size(const ggml_tensor * op) {
    const Attention a(op);
    size_t size = ggml_nbytes(op);
    if (!flash_attention_runs(op) || reads_cache_as_it_is(a)) {
        return size;
    }
    const bool values_in_keys =
        a.v->view_src && (a.v->view_src == a.k || (a.v->view_src == a.k->view_src && a.v->view_offs == a.k->view_offs));
    if (a.k->type != GGML_TYPE_F16) {
        size = GGML_PAD(size, 128) + ggml_nelements(a.k) * sizeof(ggml_fp16_t);
    }
    if (a.v->type != GGML_TYPE_F16 && !values_in_keys) {
        size = GGML_PAD(size, 128) + ggml_nelements(a.v) * sizeof(ggml_fp16_t);
    }
    return size;
}

bool g_all_types = false;

bool looks_up_rows(const ggml_tensor * table) {
    switch (table->type) {
        case GGML_TYPE_F32: case GGML_TYPE_F16: case GGML_TYPE_BF16: case GGML_TYPE_I32:
        case GGML_TYPE_Q4_0: case GGML_TYPE_Q4_1: case GGML_TYPE_Q5_0: case GGML_TYPE_Q5_1: case GGML_TYPE_Q8_0:
            return true;
        case GGML_TYPE_Q2_K: case GGML_TYPE_Q3_K: case GGML_TYPE_Q4_K: case GGML_TYPE_Q5_K: case GGML_TYPE_Q6_K:
        case GGML_TYPE_IQ2_XXS: case GGML_TYPE_IQ2_XS: case GGML_TYPE_IQ2_S: case GGML_TYPE_IQ3_XXS:
        case GGML_TYPE_IQ3_S: case GGML_TYPE_IQ1_S: case GGML_TYPE_IQ1_M: case GGML_TYPE_IQ4_XS:
            return g_all_types;
        case GGML_TYPE_IQ4_NL: case GGML_TYPE_MXFP4:
            return g_all_types && table->ne[0] % 256 == 0;
        default:
            return false;
    }
}

}  // namespace

void look_up_all_types(bool yes) { g_all_types = yes; }

size_t alloc_size(const ggml_tensor * tensor) {
    size_t size = tensor->op == GGML_OP_FLASH_ATTN_EXT ? flash_attention_size(tensor) : ggml_nbytes(tensor);
    const int64_t over = tensor->ne[0] % ROW_MULTIPLE;
    if (ggml_is_quantized(tensor->type) && over != 0) {
        size += ggml_row_size(tensor->type, ROW_MULTIPLE - over);
    }
    return size;
}

bool supports(const ggml_tensor * op) {
    switch (op->op) {
        case GGML_OP_FLASH_ATTN_EXT:
            return flash_attention_runs(op);
        case GGML_OP_GET_ROWS:
            return looks_up_rows(op->src[0]);
        default:
            return true;
    }
}

bool offloads(const ggml_tensor * op) {
    switch (op->op) {
        case GGML_OP_GET_ROWS:
            return false;
        case GGML_OP_MUL_MAT:
            return op->ne[1] >= OFFLOAD_BATCH;
        case GGML_OP_MUL_MAT_ID:
        case GGML_OP_ROPE:
        case GGML_OP_ROPE_BACK:
            return op->ne[2] >= OFFLOAD_BATCH;
        default:
            return ggml_nrows(op) >= OFFLOAD_BATCH;
    }
}

}  // namespace cuda_rules
