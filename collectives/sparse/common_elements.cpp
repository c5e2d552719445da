#include "collectives/sparse/common_elements.hpp"

#include "collectives/sparse/notes.hpp"

namespace pith {

namespace {

// Everything is one list.
constexpr std::size_t one_parcel = ~std::size_t{0};

Notes notes_of(const Call& call, const SparseCall& args) {
  return Notes(args.spec().values, call.size(), false);
}

Task<Error> sum_and_write(Call& call, const SparseCall& args, CommonValues& values) {
  std::array<float, 1> note{};
  notes_of(call, args).write(note, call.rank(), found_nonfinite(args), 0);
  values.append_notes(note);
  ValuePart part;
  const ValueSum sum = values.sum_of(0, values.count(), part);
  Error error = co_await sum_values(call, sum, *args.traffic);
  if (error) co_return error;
  values.read_notes(note);
  if (Notes::nonfinite(note) && !args.spec().drops_nonfinite) {
    deliver_nan(call, args);
  } else {
    values.write_results();
  }
  co_return error;
}

}  // namespace

Task<Error> sum_common_elements(Call& call, SparseCall args, TakeCommon take) {
  args.parcel = one_parcel;
  std::size_t most = 0;
  for (const CompressedTensor& tensor : args.tensors) {
    if (tensor.count > 0) most += elected_of(args.spec().density, tensor.count);
  }
  CommonValues values(call, args, most, notes_of(call, args).count());
  for (std::size_t t = 0; t < args.tensors.size(); ++t) {
    if (args.tensors[t].count == 0) continue;
    Error error = co_await take(call, args, t, values);
    if (error) co_return error;
  }
  co_return co_await sum_and_write(call, args, values);
}

Task<Error> sum_taken(Call& call, SparseCall args) {
  args.parcel = one_parcel;
  std::size_t all = 0;
  for (const CompressedTensor& tensor : args.tensors) all += tensor.compressor->taken().count();
  CommonValues values(call, args, all, notes_of(call, args).count());
  for (const CompressedTensor& tensor : args.tensors) {
    if (tensor.count == 0) continue;
    PairList& taken = tensor.compressor->taken();
    values.append({taken.indices(), taken.values(), taken.count()});
  }
  co_return co_await sum_and_write(call, args, values);
}

}  // namespace pith
