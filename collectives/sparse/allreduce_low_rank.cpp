// Allreduce of matrices as two factors of low rank [Vogels et al., "PowerSGD", NeurIPS 2019,
// algorithm 1]: one step of a power iteration that begins with the last call's right factor.
//
//   left  = matrix * right^T       summed over the ranks, orthonormalised by each
//   right = left^T * matrix        summed over the ranks
//   result = left * right;         a rank's residual is its matrix - left * its own right
//
// What is too small for factors goes with the left ones as it is. There are two messages, for all
// tensors of a group together, and each is a dense allreduce of float32. The residuals are a rank's
// own and not, as in the paper, the matrix less the mean: their sum is the same, and each is as
// small as it can be for this left factor.
//
// A rank that finds its gradient not finite adds NaN to a number behind the left factors, and all
// ranks deliver NaN. So they do if a sum is beyond float32; what made it so is then gone.
// Cost: low_rank_cost.hpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "collectives/algorithm.hpp"
#include "collectives/chooser.hpp"
#include "collectives/sparse/dense_result.hpp"
#include "collectives/sparse/dense_sum.hpp"
#include "collectives/sparse/factors/add_projected.hpp"
#include "collectives/sparse/factors/put_product.hpp"
#include "collectives/sparse/factors/shared_floats.hpp"
#include "collectives/sparse/take_values.hpp"

namespace pith {

namespace {

constexpr std::uint16_t left_lanes = 0;
constexpr std::uint16_t right_lanes = 0x1000;

// Iterates over the parts of all tensors, in order, with their places in the messages.
class Parts {
 public:
  explicit Parts(const SparseCall& args) : tensors_(args.tensors) { skip_ended(); }
  bool done() const { return tensor_ == tensors_.size(); }
  void next() {
    ++part_;
    skip_ended();
  }
  const CompressedTensor& tensor() const { return tensors_[tensor_]; }
  Compressor& compressor() const { return *tensor().compressor; }
  const LowRankPart& part() const { return layout().parts()[part_]; }
  std::size_t left() const { return left_ + part().left; }
  std::size_t right() const { return right_ + part().right; }
  float* values() const { return compressor().accumulator() + part().begin; }

 private:
  const LowRankLayout& layout() const { return *compressor().low_rank.layout; }
  void skip_ended() {
    while (!done() && part_ == layout().parts().size()) {
      left_ += layout().left_count();
      right_ += layout().right_count();
      part_ = 0;
      ++tensor_;
    }
  }

  std::span<const CompressedTensor> tensors_;
  std::size_t tensor_ = 0;
  std::size_t part_ = 0;
  std::size_t left_ = 0;
  std::size_t right_ = 0;
};

// Of all tensors together.
struct Counts {
  std::size_t left = 0;
  std::size_t right = 0;
};

// Whatever allocates, so that the call that has succeeded does not.
Counts prepare(const SparseCall& args) {
  Counts all;
  for (const CompressedTensor& tensor : args.tensors) {
    Compressor& compressor = *tensor.compressor;
    LowRankState& state = compressor.low_rank;
    if (state.right.empty()) {
      state.right.resize(state.layout->right_count());
      draw_right(*state.layout, compressor.spec().seed, state.right.data());
    }
    LowRankTaken& taken = compressor.taken_factors();
    taken.left.resize(state.layout->left_count());
    taken.right.resize(state.layout->right_count());
    all.left += state.layout->left_count();
    all.right += state.layout->right_count();
  }
  return all;
}

struct LowRankCall {
  LowRankCall(Call& whole, const SparseCall& sparse, const Counts& counts)
      : call(whole),
        args(sparse),
        queue(args.queue(call)),
        left(queue, counts.left + 1),  // and the number that tells of bad gradients
        right(queue, counts.right),
        sums(queue, counts.right) {}
  LowRankCall(const LowRankCall&) = delete;
  LowRankCall& operator=(const LowRankCall&) = delete;

  Call& call;
  const SparseCall& args;
  const VectorQueue queue;
  const SharedFloats left;
  const SharedFloats right;  // at first those of the last call, then this rank's
  const SharedFloats sums;   // right factors
};

// Adds the gradients and projects the sums while they are in the cache.
Task<Error> project(Call& call, LowRankCall& low) {
  for (Parts at(low.args); !at.done(); at.next()) {
    const LowRankPart& part = at.part();
    float* const to = low.left.near() + at.left();
    Task<Error> adding =
        part.is_factored()
            ? add_projected(call, low.args, low.queue, at.compressor(), part,
                            low.right.near() + at.right(), to)
            : add_in_turns(call, low.args, at.compressor(), {part.begin, part.count});
    Error error = co_await std::move(adding);
    if (error) co_return error;
    if (!part.is_factored()) {
      low.queue.run<CopyKernel>({reinterpret_cast<std::byte*>(to),
                                 reinterpret_cast<const std::byte*>(at.values()),
                                 part.count * sizeof(float)});
    }
  }
  co_return Error();
}

Task<Error> back_project(Call& call, LowRankCall& low) {
  for (Parts at(low.args); !at.done(); at.next()) {
    const auto [rows, columns, rank] = at.part().shape;
    for (Range left{0, rows}; left.size > 0;) {
      const auto [row, some] = take_front(left, rows_at_once(low.queue, columns));
      low.queue.run<BackProjectKernel>({{some, columns, rank},
                                        at.values() + row * columns,
                                        low.left.near() + at.left() + row * rank,
                                        low.right.near() + at.right(),
                                        row == 0});
      co_await call.turn();
    }
  }
  co_return Error();
}

Task<Error> orthonormalise_all(Call& call, LowRankCall& low) {
  for (Parts at(low.args); !at.done(); at.next()) {
    const FactorShape& shape = at.part().shape;
    if (!at.part().is_factored()) continue;
    const Scratch room(call.host_compute(), shape.rows * shape.rank * sizeof(double));
    orthonormalise(shape.rows, shape.rank, low.left.host() + at.left(),
                   reinterpret_cast<double*>(room.bytes().data));
    co_await call.turn();
  }
  co_return Error();
}

Task<Error> sum_message(Call& call, LowRankCall& low, Bytes send, Bytes recv, std::uint16_t lanes) {
  if (call.size() == 1 && send.data != recv.data && send.size > 0) {
    call.host_compute().run<CopyKernel>({recv.data, send.data, send.size});
  }
  if (call.size() == 1 || send.size == 0) co_return Error();
  const Algorithm& algorithm = call.chooser().algorithm(Collective::allreduce, send.size);
  co_return co_await sum_by(call, low.args, algorithm, send, recv, lanes);
}

// Sums beyond this count as beyond float32: products of factors would be.
bool is_moderate(std::span<const float> values) {
  constexpr float most = 0x1p118f;
  return std::ranges::all_of(values, [](float value) { return std::fabs(value) < most; });
}

double squares_of(Compute& host, const float* values, std::size_t count) {
  double squares = 0;
  host.run<SquaresKernel>(
      {reinterpret_cast<const std::byte*>(values), count, DType::f32, &squares});
  return squares;
}

// What this rank sends of elements as they are, before their sums take its place.
void note_elements(const LowRankCall& low) {
  for (Parts at(low.args); !at.done(); at.next()) {
    const LowRankPart& part = at.part();
    LowRankTaken& taken = at.compressor().taken_factors();
    taken.squares = part.begin == 0 ? 0 : taken.squares;
    if (part.is_factored()) continue;
    float* const elements = taken.left.data() + part.left;
    std::copy_n(low.left.host() + at.left(), part.count, elements);
    taken.squares += squares_of(low.call.host_compute(), elements, part.count);
  }
}

// The left factors are of unit length, so that the right ones have the square of the product.
void note_factors(const LowRankCall& low) {
  for (Parts at(low.args); !at.done(); at.next()) {
    const LowRankPart& part = at.part();
    if (!part.is_factored()) continue;
    const auto [rows, columns, rank] = part.shape;
    LowRankTaken& taken = at.compressor().taken_factors();
    std::copy_n(low.left.host() + at.left(), rows * rank, taken.left.data() + part.left);
    float* const right = taken.right.data() + part.right;
    std::copy_n(low.right.host() + at.right(), rank * columns, right);
    taken.squares += squares_of(low.call.host_compute(), right, rank * columns);
  }
}

// The sums were written to the place of this rank's elements.
void put_elements(Call& call, const LowRankCall& low, const Parts& at, ResultWriter& writer) {
  const CompressedTensor& tensor = at.tensor();
  const LowRankPart& part = at.part();
  const float* const sums = (tensor.sparse.count ? low.left.host() : low.left.near()) + at.left();
  put_all(call, tensor, writer, {part.begin, part.count}, reinterpret_cast<const std::byte*>(sums),
          DType::f32);
}

Task<Error> put_results(Call& call, LowRankCall& low) {
  Parts at(low.args);
  for (const CompressedTensor& tensor : low.args.tensors) {
    ResultWriter writer(call, tensor);
    for (; !at.done() && &at.tensor() == &tensor; at.next()) {
      if (!at.part().is_factored()) {
        put_elements(call, low, at, writer);
        continue;
      }
      const ResultMatrix matrix{at.part().begin, at.part().shape, low.left.near() + at.left(),
                                low.sums.near() + at.right()};
      Error error = co_await put_product(call, low.queue, tensor, matrix, writer);
      if (error) co_return error;
    }
    low.args.conclude(tensor, writer);
    tensor.compressor->stats.selected_union = tensor.count;
  }
  co_return Error();
}

void keep_right(const LowRankCall& low, Compressor& compressor, std::size_t place) {
  LowRankState& state = compressor.low_rank;
  std::copy_n(low.sums.host() + place, state.right.size(), state.right.data());
  renew_right(*state.layout, compressor.spec().seed, compressor.step, state.right.data());
}

// Takes this rank's share of the results out of the accumulators. From here on the call counts, and
// nothing is allocated.
Task<Error> take_shares(Call& call, LowRankCall& low) {
  std::size_t place = 0;
  for (const CompressedTensor& tensor : low.args.tensors) {
    Compressor& compressor = *tensor.compressor;
    compressor.taken_factors().layout = compressor.low_rank.layout;
    keep_right(low, compressor, place);
    place += compressor.low_rank.right.size();
  }
  for (Parts at(low.args); !at.done(); at.next()) {
    const LowRankPart& part = at.part();
    const auto [rows, columns, rank] = part.shape;
    if (!part.is_factored()) {
      low.queue.run<ZeroKernel>(
          {reinterpret_cast<std::byte*>(at.values()), part.count * sizeof(float)});
    }
    for (Range left{0, rows}; left.size > 0;) {
      const auto [row, some] = take_front(left, rows_at_once(low.queue, columns));
      low.queue.run<AddProductKernel>({{some, columns, rank},
                                       low.left.near() + at.left() + row * rank,
                                       low.right.near() + at.right(),
                                       -1,
                                       at.values() + row * columns});
      co_await call.turn();
    }
  }
  co_return Error();
}

// Some sum is beyond float32, and the accumulators of its tensor would make it so again: they are
// delivered, as NaN. Those of other tensors stay.
void drop_overflown(const LowRankCall& low) {
  std::size_t left = 0;
  std::size_t right = 0;
  for (const CompressedTensor& tensor : low.args.tensors) {
    Compressor& compressor = *tensor.compressor;
    const LowRankLayout& layout = *compressor.low_rank.layout;
    const std::span lefts(low.left.host() + left, layout.left_count());
    const std::span rights(low.sums.host() + right, layout.right_count());
    if (!is_moderate(lefts) || !is_moderate(rights)) compressor.take_all();
    left += layout.left_count();
    right += layout.right_count();
  }
}

void load_right(const LowRankCall& low) {
  float* at = low.right.host();
  for (const CompressedTensor& tensor : low.args.tensors) {
    at = std::ranges::copy(tensor.compressor->low_rank.right, at).out;
  }
  low.right.to_device(low.queue);
}

enum class Sums { usable, overflown, poisoned };

Task<Error> sum_left(Call& call, LowRankCall& low, std::size_t count, Sums& state) {
  co_await low.queue.until(low.left.to_host(low.queue));
  float* const left = low.left.host();
  const bool poisoned = found_nonfinite(low.args) && !low.args.spec().drops_nonfinite;
  left[count] = poisoned ? std::numeric_limits<float>::quiet_NaN() : 0;
  note_elements(low);
  const Bytes message = low.left.message();
  Error error = co_await sum_message(call, low, message, message, left_lanes);
  if (error) co_return error;
  state = is_moderate({left, count}) ? Sums::usable : Sums::overflown;
  if (std::isnan(left[count])) state = Sums::poisoned;
  co_return error;
}

// A rank whose own factor is too large says so by NaN, since the sum may look well.
Task<Error> sum_right(Call& call, LowRankCall& low, std::size_t count, Sums& state) {
  co_await low.queue.until(low.right.to_host(low.queue));
  note_factors(low);
  for (Parts at(low.args); !at.done(); at.next()) {
    const FactorShape& shape = at.part().shape;
    const std::span own(low.right.host() + at.right(), shape.rank * shape.columns);
    if (!is_moderate(own)) own[0] = std::numeric_limits<float>::quiet_NaN();
  }
  Error error =
      co_await sum_message(call, low, low.right.message(), low.sums.message(), right_lanes);
  if (!error && !is_moderate({low.sums.host(), count})) state = Sums::overflown;
  co_return error;
}

}  // namespace

Task<Error> allreduce_low_rank(Call& call, SparseCall args) {
  const Counts counts = prepare(args);
  LowRankCall low(call, args, counts);
  load_right(low);
  std::fill_n(low.sums.host(), counts.right, 0.0f);
  Sums state = Sums::usable;
  Error error = co_await project(call, low);
  if (!error) error = co_await sum_left(call, low, counts.left, state);
  if (!error && state == Sums::usable) {
    error = co_await orthonormalise_all(call, low);
    low.left.to_device(low.queue);
    if (!error) error = co_await back_project(call, low);
    if (!error) error = co_await sum_right(call, low, counts.right, state);
  }
  if (!error && state == Sums::usable) {
    low.sums.to_device(low.queue);
    error = co_await put_results(call, low);
    if (!error) error = co_await take_shares(call, low);
  } else if (!error) {
    deliver_nan(call, args);
    if (state == Sums::overflown) drop_overflown(low);
  }
  if (error) co_return error;
  // A device may still read the memory.
  const VectorQueue& queue = low.queue;
  if (queue.on_device()) co_await queue.until(queue.run<CopyKernel>({nullptr, nullptr, 0}));
  co_return error;
}

}  // namespace pith
