// Values of indices that all ranks have in common: this rank's values list by list as the indices
// arrive, then their sums over all ranks, and the result that these make.
//
// Lists are appended in the order of the pieces: those of all parcels, if the call has several,
// then those of the tails. The values are copies, because what a rank took must stay as it was sent
// until the call is over. What rounding the sums loses is kept aside until the sums are known to
// count.
#pragma once

#include <optional>
#include <span>

#include "collectives/lists/list_adder.hpp"
#include "collectives/lists/rounds.hpp"
#include "collectives/lists/value_sum.hpp"

namespace pith {

class CommonValues {
 public:
  // `most`: upper bound of the pairs in all lists that count. `notes`: number of elements that are
  // summed along with the last tail.
  CommonValues(Call& call, const SparseCall& args, std::size_t most, std::size_t notes);

  bool streams() const { return rounds_.streams(); }
  // How many pairs there is room for.
  std::size_t room() const { return capacity_ - count_; }
  // Number of pairs and notes so far: where the next list begins.
  std::size_t count() const { return count_; }
  // Precondition: there is room.
  void append(const SparseList& list);
  // Reached when all lists so far have been copied.
  Fence ready() const { return ready_; }
  // Voids the lists of this tensor so far: only its tails count.
  void replace(std::size_t tensor) { replaced_.bytes().data[tensor] = std::byte{1}; }
  bool replaced(std::size_t tensor) const { return replaced_.bytes().data[tensor] != std::byte{0}; }
  // To be called after the last tail.
  void append_notes(std::span<const float> notes);

  // The values of [begin, end), for summing in place. `part` must live as long as the sum.
  ValueSum sum_of(std::size_t begin, std::size_t end, ValuePart& part);
  Bytes values() const { return values_.bytes().part(0, count_ * size_of(type_)); }

  // To be called when the sums of a parcel's list are complete. Writes those in `part` of its
  // piece, if the result is dense, on the host, and the list has not been replaced so far. The
  // parts of a piece come in order. write_results() adds the sums of tails and overwrites what has
  // been replaced.
  Fence write_early(std::size_t list, const Piece& piece, Range part);

  // Once all sums are complete.
  void read_notes(std::span<float> notes);
  // Once the sums are known to count.
  void write_results();

 private:
  struct Segment {
    std::size_t begin = 0;
    std::size_t count = 0;
    bool written = false;
  };
  std::uint32_t* indices() const { return reinterpret_cast<std::uint32_t*>(indices_.bytes().data); }
  Segment* segments() const { return reinterpret_cast<Segment*>(segments_.bytes().data); }
  std::byte* value(std::size_t i) const { return values_.bytes().data + i * size_of(type_); }
  SparseList list(const Segment& segment) const {
    return {indices() + segment.begin, value(segment.begin), segment.count};
  }
  void keep_losses(Compressor& compressor, const Segment& segment);
  void write_parcels(const CompressedTensor& tensor, std::size_t& first, Pieces& pieces,
                     const Segment& tail, Range range, ResultWriter& writer);
  void merge(Range range, const SparseList& list, const SparseList& tail, ResultWriter& writer);

  Call& call_;
  const SparseCall& args_;
  const DType type_;
  const std::size_t notes_;
  const Rounds rounds_;
  std::size_t pieces_ = 0;  // of all parcels
  std::size_t capacity_ = 0;
  std::size_t count_ = 0;
  std::size_t lists_ = 0;
  Fence ready_;
  Scratch indices_;
  Scratch values_;
  Scratch losses_;     // of 16-bit sums, by position; otherwise empty
  Scratch positions_;  // 0, 1, 2, ...
  Scratch segments_;
  Scratch replaced_;
  std::optional<SumWriter> merged_;
};

}  // namespace pith
