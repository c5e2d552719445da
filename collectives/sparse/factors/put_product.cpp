#include "collectives/sparse/factors/put_product.hpp"

#include <algorithm>

#include "collectives/sparse/dense_result.hpp"

namespace pith {

namespace {

Task<Error> put_zeros(Call& call, const VectorQueue& queue, const CompressedTensor& tensor,
                      Range elements, ResultWriter& writer) {
  if (tensor.sparse.count) {
    writer.put(elements, {}, DType::f32);
  } else {
    const std::size_t unit = size_of(tensor.type);
    queue.run<ZeroKernel>({tensor.recv + elements.begin * unit, elements.size * unit});
  }
  co_await call.turn();
  co_return Error();
}

}  // namespace

std::size_t rows_at_once(const VectorQueue& queue, std::size_t columns, bool awaited) {
  constexpr std::size_t in_cache = std::size_t{1} << 15;  // elements
  constexpr std::size_t least = 4;
  if (queue.on_device() && !awaited) return ~std::size_t{0};
  return std::max(in_cache / columns, least);
}

Task<Error> put_product(Call& call, const VectorQueue& queue, const CompressedTensor& tensor,
                        ResultMatrix matrix, ResultWriter& writer) {
  const auto [rows, columns, rank] = matrix.shape;
  if (rank == 0) {
    Task<Error> zeros = put_zeros(call, queue, tensor, {matrix.begin, rows * columns}, writer);
    co_return co_await std::move(zeros);
  }
  const bool pairs = tensor.sparse.count != nullptr;
  const float divisor = divisor_of(tensor, call.size());
  for (Range left{0, rows}; left.size > 0;) {
    const auto [row, some] = take_front(left, rows_at_once(queue, columns, pairs));
    const FactorShape shape{some, columns, rank};
    const float* const left_factor = matrix.left + row * rank;
    const Range elements{matrix.begin + row * columns, some * columns};
    if (pairs) {
      const Scratch block(queue.host(), elements.size * sizeof(float));
      co_await queue.until(queue.run<PutProductKernel>(
          {shape, left_factor, matrix.right, 1, block.bytes().data, DType::f32}));
      put_all(call, tensor, writer, elements, block.bytes().data, DType::f32);
    } else {
      std::byte* const out = tensor.recv + elements.begin * size_of(tensor.type);
      queue.run<PutProductKernel>({shape, left_factor, matrix.right, divisor, out, tensor.type});
    }
    co_await call.turn();
  }
  co_return Error();
}

}  // namespace pith
