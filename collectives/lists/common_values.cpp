#include "collectives/lists/common_values.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace pith {

namespace {

std::uint32_t* integers(const Scratch& scratch) {
  return reinterpret_cast<std::uint32_t*>(scratch.bytes().data);
}
std::size_t pieces_in(Pieces pieces) {
  std::size_t n = 0;
  for (; !pieces.done(); pieces.next()) ++n;
  return n;
}
float* floats(const Scratch& scratch) { return reinterpret_cast<float*>(scratch.bytes().data); }

}  // namespace

CommonValues::CommonValues(Call& call, const SparseCall& args, std::size_t most, std::size_t notes)
    : call_(call), args_(args), type_(args.spec().values), notes_(notes), rounds_(args) {
  if (streams()) pieces_ = pieces_in({args.tensors, args.parcel});
  const std::size_t lists = std::max<std::size_t>(pieces_ + pieces_in(rounds_.tails(args)), 1);
  capacity_ = streams() ? 2 * most : most;  // parcels' pairs that tails replace, too
  const std::size_t room = capacity_ + notes;
  indices_ = Scratch(call.compute(), room * sizeof(std::uint32_t));
  values_ = Scratch(call.compute(), room * size_of(type_));
  segments_ = Scratch(call.host_compute(), lists * sizeof(Segment));
  replaced_ = Scratch(call.host_compute(), args.tensors.size());
  call.run<ZeroKernel>({replaced_.bytes().data, replaced_.bytes().size});
  if (type_ != DType::f32) {
    losses_ = Scratch(call.compute(), room * sizeof(float));
    positions_ = Scratch(call.compute(), room * sizeof(std::uint32_t));
    call.run<ZeroKernel>({losses_.bytes().data, losses_.bytes().size});
    std::iota(integers(positions_), integers(positions_) + room, 0u);
  }
  if (streams()) merged_.emplace(call, 2);
}

void CommonValues::append(const SparseList& list) {
  segments()[lists_++] = {count_, list.count, false};
  std::copy_n(list.indices, list.count, indices() + count_);
  ready_ = call_.run<CopyKernel>({value(count_), list.values, list.count * size_of(type_)});
  count_ += list.count;
}

void CommonValues::append_notes(std::span<const float> notes) {
  call_.run<ConvertKernel>({value(count_), type_, reinterpret_cast<const std::byte*>(notes.data()),
                            DType::f32, notes.size(), 1.0f});
  count_ += notes.size();
}

ValueSum CommonValues::sum_of(std::size_t begin, std::size_t end, ValuePart& part) {
  part.count = end - begin;
  const bool loses = type_ != DType::f32;
  part.accumulator = loses ? floats(losses_) + begin : nullptr;
  part.indices = loses ? integers(positions_) : indices() + begin;
  ValueSum sum;
  sum.values = value(begin);
  sum.count = part.count;
  sum.type = type_;
  sum.parts = {&part, 1};
  return sum;
}

void CommonValues::read_notes(std::span<float> notes) {
  call_.run<ConvertKernel>({reinterpret_cast<std::byte*>(notes.data()), DType::f32,
                            value(count_ - notes_), type_, notes_, 1.0f});
}

void CommonValues::keep_losses(Compressor& compressor, const Segment& segment) {
  if (type_ == DType::f32) return;
  compressor.keep_losses(
      call_.host_compute(),
      {indices() + segment.begin,
       reinterpret_cast<const std::byte*>(floats(losses_) + segment.begin), segment.count});
}

Fence CommonValues::write_early(std::size_t number, const Piece& piece, Range part) {
  const CompressedTensor& tensor = args_.tensors[piece.tensor];
  // On a device one kernel writes the vector at the end.
  if (tensor.sparse.count || tensor.device || replaced(piece.tensor)) return {};
  Segment& segment = segments()[number];
  const SparseList sums = part_of(list(segment), type_, part.begin, part.size);
  const Fence written = ResultWriter(call_, tensor).put(part, sums, type_);
  segment.written = part.begin + part.size == piece.range.begin + piece.range.size;
  return written;
}

void CommonValues::write_results() {
  Pieces pieces(args_.tensors, args_.parcel);
  Pieces tails = rounds_.tails(args_);
  std::size_t first = 0;  // number of the first parcel's list that has not been written
  std::size_t number = pieces_;
  for (const CompressedTensor& tensor : args_.tensors) {
    ResultWriter writer(call_, tensor);
    for (std::size_t done = 0; done < tensor.count;) {
      const Range range = tails.next().range;
      const Segment& tail = segments()[number++];
      keep_losses(*tensor.compressor, tail);
      if (streams()) {
        write_parcels(tensor, first, pieces, tail, range, writer);
      } else {
        writer.put(range, list(tail), type_);
      }
      done += range.size;
    }
    args_.conclude(tensor, writer);
  }
}

// Writes the parcels' lists in `range` together with that of their tail. `pieces` and `first` are
// at the first of them.
void CommonValues::write_parcels(const CompressedTensor& tensor, std::size_t& first, Pieces& pieces,
                                 const Segment& tail, Range range, ResultWriter& writer) {
  for (std::size_t done = 0; done < range.size;) {
    const Piece piece = pieces.next();
    Segment own = segments()[first++];
    const bool counts = !replaced(piece.tensor);
    if (!counts) own.count = 0;
    keep_losses(*tensor.compressor, own);
    const SparseList rest = part_of(list(tail), type_, piece.range.begin, piece.range.size);
    if (own.written && counts) {
      writer.add(own.count, rest, type_);
    } else {
      merge(piece.range, list(own), rest, writer);
    }
    done += piece.range.size;
  }
}

// Writes the union of both lists, which lie in the range and have no index in common.
void CommonValues::merge(Range range, const SparseList& list, const SparseList& tail,
                         ResultWriter& writer) {
  if (tail.count == 0) return void(writer.put(range, list, type_));
  if (list.count == 0) return void(writer.put(range, tail, type_));
  const std::array lists{list, tail};
  merged_->write(lists, type_, range, writer);
}

}  // namespace pith
