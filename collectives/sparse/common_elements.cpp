#include "collectives/sparse/common_elements.hpp"

#include "collectives/sparse/notes.hpp"

namespace pith {

Task<Error> sum_common_elements(Call& call, SparseCall args, TakeCommon take) {
  args.parcel = ~std::size_t{0};  // everything is one
  std::size_t most = 0;
  for (const CompressedTensor& tensor : args.tensors) {
    if (tensor.count > 0) most += elected_of(args.spec().density, tensor.count);
  }
  const Notes notes(args.spec().values, call.size(), false);
  std::array<float, 1> note{};
  CommonValues values(call, args, most, notes.count());
  for (std::size_t t = 0; t < args.tensors.size(); ++t) {
    if (args.tensors[t].count == 0) continue;
    Error error = co_await take(call, args, t, values);
    if (error) co_return error;
  }
  notes.write(note, call.rank(), found_nonfinite(args), 0);
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

}  // namespace pith
