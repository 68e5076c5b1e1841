// Works in slabs of whole key heads, so that the fp32 scores of all sequences and heads do not
// exist at the same time.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/attention.h"
#include "kernels/bf16.h"
#include "kernels/cuda/batched_gemm.h"
#include "kernels/cuda/causal_softmax.h"
#include "kernels/cuda/packed.h"

namespace ckpt::kernels {
namespace {

constexpr int64_t kBatchMax = 65535;

// Place of all heads' matrices: address, and bytes from one matrix to the next.
struct HeadArray {
  uintptr_t base = 0;
  int64_t sequence_bytes = 0;
  int64_t head_bytes = 0;
  int64_t heads_per_matrix = 1;

  CKPT_HOST_DEVICE void* at(int64_t sequence, int64_t head) const {
    const int64_t bytes = sequence * sequence_bytes + head / heads_per_matrix * head_bytes;
    return reinterpret_cast<void*>(base + static_cast<uintptr_t>(bytes));
  }
  bool aligned() const {
    const auto all = base | static_cast<uintptr_t>(sequence_bytes | head_bytes);
    return all % kMatrixAlignment == 0;
  }
};

enum Operand {
  kQuery,
  kKey,
  kValue,
  kOut,  // backward: the gradient of the output
  kProbabilities,
  kScores,         // fp32, of one slab; backward: the gradient of the probabilities
  kScoreGradient,  // of one slab
  kQueryGradient,
  kKeyGradient,
  kValueGradient,
  kKeySums,  // fp32, of one slab: sums of a gradient of keys or values, before rounding
  kOperands,
};
struct HeadArrays {
  HeadArray of[kOperands];
};

// Key heads [first, first + count), counted through all sequences, with their query heads.
struct Slab {
  int64_t first = 0;
  int64_t count = 0;
};

// Query head number `member` of the `index`-th key head of a slab.
struct QueryHead {
  int64_t sequence = 0;
  int64_t head = 0;
};
CKPT_HOST_DEVICE QueryHead query_head(const AttentionShape& shape, const Slab& slab, int64_t index,
                                      int64_t member) {
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t key_head = slab.first + index;
  return {key_head / shape.kv_heads, key_head % shape.kv_heads * group + member};
}

// pointers[operand, member, index]: pointers of one member are adjacent, so they form a batch.
__global__ void __launch_bounds__(kBlockThreads)
    pointers_kernel(AttentionShape shape, Slab slab, HeadArrays arrays, void** pointers) {
  const int64_t heads = slab.count * (shape.heads / shape.kv_heads);
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= heads) return;
  const auto [sequence, head] = query_head(shape, slab, at % slab.count, at / slab.count);
  pointers[blockIdx.y * heads + at] = arrays.of[blockIdx.y].at(sequence, head);
}

// Rounds sums [slab.count, seq_len, head_dim] into the gradient of the slab's key heads.
template <int kCount>
__global__ void __launch_bounds__(kBlockThreads)
    round_kernel(AttentionShape shape, Slab slab, HeadArray gradient, const float* sums) {
  for (int64_t row = first_row(); row < slab.count * shape.seq_len; row += row_stride()) {
    const auto [sequence, head] = query_head(shape, slab, row / shape.seq_len, 0);
    const int64_t token = row % shape.seq_len;
    Bf16* const to =
        static_cast<Bf16*>(gradient.at(sequence, head)) + token * shape.kv_heads * shape.head_dim;
    const float* const from = sums + row * shape.head_dim;
    for (int64_t i = int64_t{threadIdx.x} * kCount; i < shape.head_dim; i += blockDim.x * kCount) {
      const auto pack = load_packed<kCount>(from + i);
      Packed<Bf16, kCount> rounded;
      for (int j = 0; j < kCount; ++j) rounded.values[j] = to_bf16(pack.values[j]);
      store_packed(to + i, rounded);
    }
  }
}

float score_scale(const AttentionShape& shape) {
  return 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
}

int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Shared by forward and backward: slabs, pointers, and products over the heads of a slab.
template <typename Real>
class Heads {
 public:
  Heads(CudaQueue& queue, const AttentionShape& shape, int64_t score_bytes_max)
      : queue_(queue), shape_(shape), group_(shape.heads / shape.kv_heads) {
    key_heads_ = shape.sequences * shape.kv_heads;
    slab_heads_ = score_bytes_max / (group_ * matrix() * int64_t{sizeof(float)});
    slab_heads_ = std::max<int64_t>(std::min(slab_heads_, kBatchMax / group_), 1);
    slab_heads_ = std::min(slab_heads_, key_heads_);
  }
  int64_t matrix() const { return shape_.seq_len * shape_.seq_len; }

  HeadArray query(const Real* at) const { return array(at, shape_.heads, 1); }
  HeadArray key(const Real* at) const { return array(at, shape_.kv_heads, group_); }
  // [sequences, heads, seq_len, seq_len], of which only heads from `first` on exist.
  template <typename T>
  HeadArray square(const T* at, int64_t first = 0) const {
    const int64_t bytes = matrix() * int64_t{sizeof(T)};
    return {reinterpret_cast<uintptr_t>(at) - static_cast<uintptr_t>(first * bytes),
            shape_.heads * bytes, bytes, 1};
  }

  // Scratch for the pointers, fp32 scores and, if they cannot share the memory of the scores, their
  // gradients; `gradients` also adds the sums over the query heads of a key head.
  void take_scratch(bool scores, bool gradients) {
    const int64_t heads = slab_heads_ * group_;
    const int64_t pointer_bytes = aligned(heads * kOperands * int64_t{sizeof(void*)});
    const int64_t score_bytes = scores ? aligned(heads * matrix() * int64_t{sizeof(float)}) : 0;
    const int64_t gradient_bytes =
        gradients ? aligned(heads * matrix() * int64_t{sizeof(Real)}) : 0;
    const int64_t sum_bytes = gradients && rounds_sums() ? slab_heads_ * key_head_bytes() : 0;
    auto* memory = static_cast<char*>(queue_.scratch(
        static_cast<size_t>(pointer_bytes + score_bytes + gradient_bytes + sum_bytes)));
    pointers_ = reinterpret_cast<void**>(memory);
    scores_ = reinterpret_cast<float*>(memory + pointer_bytes);
    score_gradient_ = reinterpret_cast<Real*>(memory + pointer_bytes + score_bytes);
    key_sums_ = reinterpret_cast<float*>(memory + pointer_bytes + score_bytes + gradient_bytes);
  }
  float* scores() const { return scores_; }
  Real* score_gradient() const { return score_gradient_; }

  // Calls work(first query head) slab after slab; heads are counted through all sequences.
  template <typename Work>
  void for_each_slab(Work work) {
    for (slab_.first = 0; slab_.first < key_heads_; slab_.first += slab_heads_) {
      slab_.count = std::min(slab_heads_, key_heads_ - slab_.first);
      work(slab_.first * group_);
    }
  }
  int64_t slab_rows() const { return slab_.count * group_ * shape_.seq_len; }

  void place(const HeadArrays& arrays) {
    arrays_ = arrays;
    const int64_t key_bytes = key_head_bytes();
    arrays_.of[kKeySums] = {
        reinterpret_cast<uintptr_t>(key_sums_) - static_cast<uintptr_t>(slab_.first * key_bytes),
        shape_.kv_heads * key_bytes, key_bytes, group_};
    launch(queue_, "attention pointers",
           dim3(blocks_for(slab_.count * group_, kBlockThreads), kOperands), kBlockThreads,
           pointers_kernel, shape_, slab_, arrays_, pointers_);
  }
  // Multiplies for all heads of the slab.
  void multiply_all(const char* name, const ProductTypes& types, const Product& product, Operand a,
                    Operand b, Operand c) {
    multiply_members(name, types, product, {a, b, c}, 0, group_);
  }
  // Same, if c belongs to the key head: its first query head replaces c, the others add to c in
  // order. The sum is fp32 and is rounded once.
  void multiply_to_keys(const char* name, Product product, Operand a, Operand b, Operand c) {
    const bool rounds = rounds_sums();
    if (rounds) product.c_stride = shape_.head_dim;
    const ProductTypes types = rounds ? product_types<Real, float>() : product_types<Real>();
    for (int64_t member = 0; member < group_; ++member) {
      product.beta = member == 0 ? 0.0f : 1.0f;
      multiply_members(name, types, product, {a, b, rounds ? kKeySums : c}, member, 1);
    }
    if (rounds) round_sums(name, arrays_.of[c]);
  }

 private:
  struct Operands {
    Operand a, b, c;
  };

  // True if the products of several query heads add up in a type that is not fp32.
  bool rounds_sums() const { return std::is_same_v<Real, Bf16> && group_ > 1; }
  int64_t key_head_bytes() const {
    return shape_.seq_len * shape_.head_dim * int64_t{sizeof(float)};
  }
  void round_sums(const char* name, const HeadArray& gradient) {
    const bool packed = gradient.aligned();  // then head_dim is a multiple of 8
    const RowLaunch over = launch_over_rows(slab_.count * shape_.seq_len,
                                            packed ? shape_.head_dim / 4 : shape_.head_dim);
    launch(queue_, name, over.grid, over.block, packed ? round_kernel<4> : round_kernel<1>, shape_,
           slab_, gradient, key_sums_);
  }

  HeadArray array(const Real* at, int64_t heads, int64_t heads_per_matrix) const {
    const int64_t bytes = shape_.head_dim * int64_t{sizeof(Real)};
    return {reinterpret_cast<uintptr_t>(at), shape_.seq_len * heads * bytes, bytes,
            heads_per_matrix};
  }

  void multiply_members(const char* name, const ProductTypes& types, const Product& product,
                        const Operands& of, int64_t member, int64_t members) {
    const HeadArray& a = arrays_.of[of.a];
    const HeadArray& b = arrays_.of[of.b];
    const HeadArray& c = arrays_.of[of.c];
    if (!needs_alignment(types) || (a.aligned() && b.aligned() && c.aligned())) {
      const auto from = [&](Operand operand) {
        return pointers_ + (operand * group_ + member) * slab_.count;
      };
      multiply_batch(queue_, name, types, product, members * slab_.count, from(of.a), from(of.b),
                     from(of.c));
      return;
    }
    for (int64_t i = 0; i < members * slab_.count; ++i) {
      const auto [sequence, head] =
          query_head(shape_, slab_, i % slab_.count, member + i / slab_.count);
      multiply(queue_, name, types,
               {product, a.at(sequence, head), b.at(sequence, head), c.at(sequence, head)});
    }
  }

  CudaQueue& queue_;
  AttentionShape shape_;
  int64_t group_;           // query heads of a key head
  int64_t key_heads_ = 0;   // of all sequences
  int64_t slab_heads_ = 0;  // key heads of a slab, at most
  Slab slab_;
  HeadArrays arrays_;
  void** pointers_ = nullptr;
  float* scores_ = nullptr;
  Real* score_gradient_ = nullptr;
  float* key_sums_ = nullptr;
};

// The products of one head. `query` and `key`: row strides, which span the rows of all heads.
struct Products {
  explicit Products(const AttentionShape& shape)
      : n(shape.seq_len),
        d(shape.head_dim),
        query(shape.heads * shape.head_dim),
        key(shape.kv_heads * shape.head_dim) {}

  // a[n, d] b[n, d]^T, with a like a query and b like a key.
  Product scores(float alpha) const {
    return {.rows = n,
            .columns = n,
            .inner = d,
            .a = {query},
            .b = {key, true},
            .c_stride = n,
            .alpha = alpha};
  }
  // a[n, n] b[n, d], with b like a key.
  Product weighted_sum() const {
    return {.rows = n, .columns = d, .inner = n, .a = {n}, .b = {key}, .c_stride = query};
  }
  // a[n, n]^T b[n, d], with b like a query.
  Product to_key() const {
    return {.rows = n, .columns = d, .inner = n, .a = {n, true}, .b = {query}, .c_stride = key};
  }

  int64_t n, d, query, key;
};

}  // namespace

template <typename Real>
void attention_forward(CudaQueue& queue, const AttentionShape& shape, const Real* q, const Real* k,
                       const Real* v, Real* probabilities, Real* out, int64_t score_bytes_max) {
  if (shape.tokens() == 0) return;
  constexpr bool kInPlace = std::is_same_v<Real, float>;
  const Products products(shape);
  Heads<Real> heads(queue, shape, score_bytes_max);
  heads.take_scratch(!kInPlace, false);
  heads.for_each_slab([&](int64_t first) {
    Real* slab_probabilities = probabilities + first * heads.matrix();
    float* scores = heads.scores();
    if constexpr (kInPlace) scores = slab_probabilities;
    HeadArrays arrays;
    arrays.of[kQuery] = heads.query(q);
    arrays.of[kKey] = heads.key(k);
    arrays.of[kValue] = heads.key(v);
    arrays.of[kOut] = heads.query(out);
    arrays.of[kProbabilities] = heads.square(probabilities);
    arrays.of[kScores] = heads.square(scores, first);
    heads.place(arrays);
    heads.multiply_all("attention scores", product_types<Real, float>(),
                       products.scores(score_scale(shape)), kQuery, kKey, kScores);
    causal_softmax(queue, heads.slab_rows(), shape.seq_len, scores, slab_probabilities);
    heads.multiply_all("attention", product_types<Real>(), products.weighted_sum(), kProbabilities,
                       kValue, kOut);
  });
}

template <typename Real>
void attention_backward(CudaQueue& queue, const AttentionShape& shape, const Real* dout,
                        const Real* q, const Real* k, const Real* v, const Real* probabilities,
                        const CudaAttentionGradients<Real>& gradients, int64_t score_bytes_max) {
  if (shape.tokens() == 0) return;
  constexpr bool kInPlace = std::is_same_v<Real, float>;
  const Products products(shape);
  Heads<Real> heads(queue, shape, score_bytes_max);
  heads.take_scratch(true, !kInPlace);
  float* dprobabilities = heads.scores();
  Real* dscores = heads.score_gradient();
  if constexpr (kInPlace) dscores = dprobabilities;
  heads.for_each_slab([&](int64_t first) {
    HeadArrays arrays;
    arrays.of[kQuery] = heads.query(q);
    arrays.of[kKey] = heads.key(k);
    arrays.of[kValue] = heads.key(v);
    arrays.of[kOut] = heads.query(dout);
    arrays.of[kProbabilities] = heads.square(probabilities);
    arrays.of[kScores] = heads.square(dprobabilities, first);
    arrays.of[kScoreGradient] = heads.square(dscores, first);
    arrays.of[kQueryGradient] = heads.query(gradients.q);
    arrays.of[kKeyGradient] = heads.key(gradients.k);
    arrays.of[kValueGradient] = heads.key(gradients.v);
    heads.place(arrays);
    heads.multiply_to_keys("attention value gradient", products.to_key(), kProbabilities, kOut,
                           kValueGradient);
    heads.multiply_all("attention probability gradient", product_types<Real, float>(),
                       products.scores(1.0f), kOut, kValue, kScores);
    causal_softmax_backward(queue, heads.slab_rows(), shape.seq_len, score_scale(shape),
                            probabilities + first * heads.matrix(), dprobabilities, dscores);
    heads.multiply_all("attention query gradient", product_types<Real>(), products.weighted_sum(),
                       kScoreGradient, kKey, kQueryGradient);
    heads.multiply_to_keys("attention key gradient", products.to_key(), kScoreGradient, kQuery,
                           kKeyGradient);
  });
}

template void attention_forward<float>(CudaQueue&, const AttentionShape&, const float*,
                                       const float*, const float*, float*, float*, int64_t);
template void attention_forward<Bf16>(CudaQueue&, const AttentionShape&, const Bf16*, const Bf16*,
                                      const Bf16*, Bf16*, Bf16*, int64_t);
template void attention_backward<float>(CudaQueue&, const AttentionShape&, const float*,
                                        const float*, const float*, const float*, const float*,
                                        const CudaAttentionGradients<float>&, int64_t);
template void attention_backward<Bf16>(CudaQueue&, const AttentionShape&, const Bf16*, const Bf16*,
                                       const Bf16*, const Bf16*, const Bf16*,
                                       const CudaAttentionGradients<Bf16>&, int64_t);

}  // namespace ckpt::kernels
