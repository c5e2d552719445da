#include "collectives/common_values.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace pith {

namespace {

std::uint32_t* integers(const Scratch& scratch) {
  return reinterpret_cast<std::uint32_t*>(scratch.bytes().data);
}
float* floats(const Scratch& scratch) { return reinterpret_cast<float*>(scratch.bytes().data); }

}  // namespace

CommonValues::CommonValues(Call& call, const SparseCall& args, std::size_t most, std::size_t notes)
    : call_(call),
      args_(args),
      type_(args.spec().values),
      notes_(notes),
      streams_(Rounds(args).streams()) {
  if (streams_) {
    for (Pieces all(args.tensors, args.parcel); !all.done(); all.next()) ++pieces_;
  }
  const std::size_t lists = pieces_ + args.tensors.size();
  capacity_ = streams_ ? 2 * most : most;  // of a tensor that is replaced, both
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
  if (streams_) merged_.emplace(call, 2);
}

void CommonValues::append(const SparseList& list) {
  segments()[lists_++] = {count_, list.count};
  std::copy_n(list.indices, list.count, indices() + count_);
  call_.run<CopyKernel>({value(count_), list.values, list.count * size_of(type_)});
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

void CommonValues::write_results() {
  Pieces pieces(args_.tensors, args_.parcel);
  std::size_t first = 0;
  std::size_t tail = pieces_;
  for (const CompressedTensor& tensor : args_.tensors) {
    write(tensor, pieces, first, tensor.count > 0 ? segments()[tail++] : Segment{0, 0});
  }
}

// `pieces` and the segment `first` are at the tensor's first, where there are several parcels.
void CommonValues::write(const CompressedTensor& tensor, Pieces& pieces, std::size_t& first,
                         const Segment& tail) {
  ResultWriter writer(call_, tensor);
  const auto number = static_cast<std::size_t>(&tensor - args_.tensors.data());
  const bool replaced = replaced_.bytes().data[number] != std::byte{0};
  keep_losses(*tensor.compressor, tail);
  if (!streams_ && tensor.count > 0) writer.put({0, tensor.count}, list(tail), type_);
  for (std::size_t done = 0; streams_ && done < tensor.count;) {
    const Piece piece = pieces.next();
    done += piece.range.size;
    Segment own = segments()[first++];
    if (replaced) own.count = 0;
    keep_losses(*tensor.compressor, own);
    merge(piece.range, list(own), part_of(list(tail), type_, piece.range.begin, piece.range.size),
          writer);
  }
  args_.conclude(tensor, writer);
}

// Both lists lie in the range, and have no index in common.
void CommonValues::merge(Range range, const SparseList& list, const SparseList& tail,
                         ResultWriter& writer) {
  if (tail.count == 0) return writer.put(range, list, type_);
  if (list.count == 0) return writer.put(range, tail, type_);
  const std::array lists{list, tail};
  merged_->write(lists, type_, range, writer);
}

}  // namespace pith
