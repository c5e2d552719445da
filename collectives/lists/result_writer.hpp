// Writes the result of a compressed call, dense or as pairs, piece by piece in rising order.
#pragma once

#include "collectives/compressed.hpp"
#include "collectives/patterns.hpp"

namespace pith {

class ResultWriter {
 public:
  ResultWriter(Call& call, const CompressedTensor& tensor)
      : call_(call), tensor_(tensor), divisor_(divisor_of(tensor, call.size())) {}
  ResultWriter(const ResultWriter&) = delete;
  ResultWriter& operator=(const ResultWriter&) = delete;
  ~ResultWriter() { write_waiting(); }

  // The sums at indices that lie in the range; the rest of the range is zero. On host memory, when
  // that is written.
  Fence put(Range range, const SparseList& sums, DType type);
  // The same for a range that another writer has put `before` pairs in, where the result is dense:
  // sums at other indices.
  void add(std::size_t before, const SparseList& sums, DType type);
  // Every element becomes NaN: somebody's gradient was not finite.
  void put_nan();
  // After the last piece.
  Error finish();
  // Pairs put so far.
  std::size_t count() const { return count_; }

 private:
  void put_on_device(Range range, const SparseList& sums, DType type);
  void put_pairs(const SparseList& sums, DType type);
  void put_pairs_on_device(const SparseList& sums, DType type);
  void wait_for_pairs(std::size_t room);
  void write_waiting();
  void write_waiting_pairs();
  void retire_waiting(Fence written);
  void tell_count() const;
  Compute& output() const { return tensor_.device ? *tensor_.device : call_.compute(); }

  Call& call_;
  const CompressedTensor& tensor_;
  float divisor_;
  std::size_t count_ = 0;

  // Of a device's vector: pieces one behind another, for one kernel, with their pairs in memory
  // that it reaches. Where the result is pairs, these as they are told.
  struct Waiting {
    Range range;
    DType type = DType::f32;
    std::size_t room = 0;
    std::size_t count = 0;
    Scratch indices;
    Scratch values;
  };
  Waiting waiting_;
  std::size_t written_ = 0;  // pairs that are on their way to a device's output
};

}  // namespace pith
