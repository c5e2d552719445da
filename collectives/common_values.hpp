// The values that all ranks have for the same indices: list after list, as the indices come, their
// sums, and the result that these make.
//
// Lists come in the order of the pieces: those of all parcels, where the call has several, and then
// one list per tensor, the tail. Values are copies: what a rank took stays as it was sent until the
// call is over; and what roundings of sums lose is kept aside until it is known that they count.
#pragma once

#include <optional>
#include <span>

#include "collectives/list_adder.hpp"
#include "collectives/parcels.hpp"
#include "collectives/value_sum.hpp"

namespace pith {

// What one message is about.
struct Round {
  std::uint32_t step = 0;
  bool tail = false;
  Pieces lists;   // the first piece of its lists
  Pieces passes;  // the first piece that is to be looked at for them; done() where none is
};

// All messages of a call: a parcel each, and the tail; that one alone where there is but one
// parcel.
class Rounds {
 public:
  explicit Rounds(const SparseCall& args)
      : args_(args), left_(args.tensors, args.parcel), streams_(has_several(left_)) {}

  bool streams() const { return streams_; }
  bool done() const { return done_; }
  // Precondition: !done().
  Round next() {
    const Pieces parcel = left_;
    done_ = left_.done() || !streams_;
    if (done_) return {step_, true, Pieces(args_.tensors, whole), parcel};
    skip_parcel(left_);
    return {step_++, false, parcel, parcel};
  }

 private:
  static constexpr std::size_t whole = ~std::size_t{0};  // every tensor is one piece

  static void skip_parcel(Pieces& pieces) {
    while (!pieces.next().ends_parcel) {
    }
  }
  static bool has_several(Pieces pieces) {
    if (!pieces.done()) skip_parcel(pieces);
    return !pieces.done();
  }

  const SparseCall& args_;
  Pieces left_;
  bool streams_;
  bool done_ = false;
  std::uint32_t step_ = 0;
};

class CommonValues {
 public:
  // `most`: pairs of all lists that count. `notes`: elements that are summed along with the tail.
  CommonValues(Call& call, const SparseCall& args, std::size_t most, std::size_t notes);

  bool streams() const { return streams_; }
  // How many pairs the next list may have.
  std::size_t room() const { return capacity_ - count_; }
  // Pairs and notes so far: where the next list begins.
  std::size_t count() const { return count_; }
  // Precondition: there is room.
  void append(const SparseList& list);
  // The lists of this tensor so far are void: its tail is all that counts.
  void replace(std::size_t tensor) { replaced_.bytes().data[tensor] = std::byte{1}; }
  // Behind the tail.
  void append_notes(std::span<const float> notes);

  // The values of [begin, end), to be summed in place. `part` lives as long.
  ValueSum sum_of(std::size_t begin, std::size_t end, ValuePart& part);
  Bytes values() const { return values_.bytes().part(0, count_ * size_of(type_)); }

  // Once all sums are there:
  void read_notes(std::span<float> notes);
  // They count.
  void write_results();

 private:
  struct Segment {
    std::size_t begin;
    std::size_t count;
  };
  std::uint32_t* indices() const { return reinterpret_cast<std::uint32_t*>(indices_.bytes().data); }
  Segment* segments() const { return reinterpret_cast<Segment*>(segments_.bytes().data); }
  std::byte* value(std::size_t i) const { return values_.bytes().data + i * size_of(type_); }
  SparseList list(const Segment& segment) const {
    return {indices() + segment.begin, value(segment.begin), segment.count};
  }
  void keep_losses(Compressor& compressor, const Segment& segment);
  void write(const CompressedTensor& tensor, Pieces& pieces, std::size_t& first,
             const Segment& tail);
  void merge(Range range, const SparseList& list, const SparseList& tail, ResultWriter& writer);

  Call& call_;
  const SparseCall& args_;
  const DType type_;
  const std::size_t notes_;
  const bool streams_;      // there are lists of parcels
  std::size_t pieces_ = 0;  // of all parcels
  std::size_t capacity_ = 0;
  std::size_t count_ = 0;
  std::size_t lists_ = 0;
  Scratch indices_;
  Scratch values_;
  Scratch losses_;     // of 16-bit sums, by position; none else
  Scratch positions_;  // 0, 1, 2, ...
  Scratch segments_;
  Scratch replaced_;
  std::optional<SumWriter> merged_;
};

}  // namespace pith
