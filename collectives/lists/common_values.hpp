// The values that all ranks have for the same indices: list after list, as the indices come, their
// sums, and the result that these make.
//
// Lists come in the order of the pieces: those of all parcels, where the call has several, and then
// those of the tails. Values are copies: what a rank took stays as it was sent until the call is
// over; and what roundings of sums lose is kept aside until it is known that they count.
#pragma once

#include <optional>
#include <span>

#include "collectives/lists/list_adder.hpp"
#include "collectives/lists/rounds.hpp"
#include "collectives/lists/value_sum.hpp"

namespace pith {

class CommonValues {
 public:
  // `most`: pairs of all lists that count. `notes`: elements that are summed along with the tail.
  CommonValues(Call& call, const SparseCall& args, std::size_t most, std::size_t notes);

  bool streams() const { return rounds_.streams(); }
  // How many pairs the next list may have.
  std::size_t room() const { return capacity_ - count_; }
  // Pairs and notes so far: where the next list begins.
  std::size_t count() const { return count_; }
  // Precondition: there is room.
  void append(const SparseList& list);
  // When what was appended so far is there.
  Fence ready() const { return ready_; }
  // How many lists there are: the number of the next one.
  std::size_t lists() const { return lists_; }
  // The lists of this tensor so far are void: its tails are all that counts.
  void replace(std::size_t tensor) { replaced_.bytes().data[tensor] = std::byte{1}; }
  bool replaced(std::size_t tensor) const { return replaced_.bytes().data[tensor] != std::byte{0}; }
  // Behind the last tail.
  void append_notes(std::span<const float> notes);

  // The values of [begin, end), to be summed in place. `part` lives as long.
  ValueSum sum_of(std::size_t begin, std::size_t end, ValuePart& part);
  Bytes values() const { return values_.bytes().part(0, count_ * size_of(type_)); }

  // The sums of a parcel's list are there: writes those of a part of its piece where results are
  // dense and they count, as far as it is known. The parts of a piece come in order. What tails
  // bring is added at the end, and what does not count replaced.
  Fence write_early(std::size_t list, const Piece& piece, Range part);

  // Once all sums are there:
  void read_notes(std::span<float> notes);
  // They count.
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
  Scratch losses_;     // of 16-bit sums, by position; none else
  Scratch positions_;  // 0, 1, 2, ...
  Scratch segments_;
  Scratch replaced_;
  std::optional<SumWriter> merged_;
};

}  // namespace pith
