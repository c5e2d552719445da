// Writes the result of a compressed call, dense or as pairs, range by range in ascending order.
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

  // Writes the sums at the indices in `range` and zeros elsewhere in it. Returns the fence of the
  // write if the result is dense and on the host.
  Fence put(Range range, const SparseList& sums, DType type);
  // Writes more sums, at other indices, into a range of a dense result on the host that already has
  // `before` pairs, or zeros only.
  void add(std::size_t before, const SparseList& sums, DType type);
  // Sets every element to NaN: the gradient of some rank was not finite.
  void put_nan();
  // To be called after the last range. An error if a sparse result does not fit.
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

  // For a device: consecutive ranges and their pairs, in host memory that the device reaches, to be
  // written by one kernel. For a sparse result the pairs in their final form.
  struct Waiting {
    Range range;
    DType type = DType::f32;
    std::size_t room = 0;
    std::size_t count = 0;
    Scratch indices;
    Scratch values;
  };
  Waiting waiting_;
  std::size_t written_ = 0;  // pairs whose copy to a device's output has begun
};

}  // namespace pith
