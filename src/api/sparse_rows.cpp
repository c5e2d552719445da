// pith.h implemented: sums of sparse vectors of rows.
#include <fmt/format.h>

#include "api/check.hpp"
#include "api/comm_handle.hpp"
#include "api/last_error.hpp"
#include "comm/rows/all_reduce_rows.hpp"
#include "streams/stream_memory.hpp"

using namespace pith;
using namespace pith::api;

namespace {

constexpr const char* entry = "pithAllReduceSparse";

Error check_shape(std::uint64_t rows, std::size_t width) {
  constexpr std::uint64_t most_rows = std::uint64_t{1} << 32;
  if (rows > most_rows)
    return refused(entry, fmt::format("rows is {}, expected at most 2^32", rows));
  return width == 0 ? refused(entry, "width is 0, expected at least 1") : Error();
}

Error check_rows(const char* argument, std::size_t count, std::size_t width, pithDataType_t type) {
  std::size_t elements = 0;
  if (__builtin_mul_overflow(count, width, &elements)) elements = ~std::size_t{0};
  return check_count(entry, argument, elements, type, 1);
}

Error check_on_host(const char* argument, const void* memory) {
  if (!memory) return {};
  const Expected<bool> on_device = is_device_memory(memory);
  if (!on_device) return told_by(entry, on_device.error());
  if (!*on_device) return {};
  return refused(entry,
                 fmt::format("{} is device memory ({}), expected host memory", argument, memory));
}

}  // namespace

pithResult_t pithAllReduceSparse(const uint64_t* indices, const void* values, size_t n,
                                 uint64_t* sum_indices, void* sum_values, size_t capacity,
                                 size_t* sum_n, uint64_t rows, size_t width, pithDataType_t type,
                                 pithRedOp_t op, pithComm_t comm) {
  return guarded(comm, [&] {
    return conclude([&]() -> Error {
      Error error = check_communicator(entry, comm);
      if (!error) error = check_type(entry, type);
      if (!error) error = check_shape(rows, width);
      if (!error) error = check_sum(entry, op);
      if (!error) error = check_memory(entry, "indices", indices, n);
      if (!error) error = check_memory(entry, "values", values, n);
      if (!error) error = check_memory(entry, "sum_indices", sum_indices, capacity);
      if (!error) error = check_memory(entry, "sum_values", sum_values, capacity);
      if (!error) error = check_pointer(entry, "sum_n", sum_n);
      if (!error) error = check_rows("n * width", n, width, type);
      if (!error) error = check_rows("capacity * width", capacity, width, type);
      if (error) return error;
      if (Group::of_this_thread().open()) {
        return {Code::invalid_usage,
                fmt::format("{}: a group is open, expected none: only the end of the call tells "
                            "how many rows there are",
                            entry)};
      }
      look_for_device_memory();
      error = first_of({check_on_host("indices", indices), check_on_host("values", values),
                        check_on_host("sum_indices", sum_indices),
                        check_on_host("sum_values", sum_values)});
      if (error) return error;
      const RowsGiven given{.rows = rows,
                            .row = {width, static_cast<DType>(type)},
                            .average = op == pithAvg,
                            .indices = indices,
                            .values = static_cast<const std::byte*>(values),
                            .count = n};
      const RowsWanted wanted{.indices = sum_indices,
                              .values = static_cast<std::byte*>(sum_values),
                              .capacity = capacity,
                              .count = sum_n};
      return told_by(entry, all_reduce_rows(comm->communicator, given, wanted));
    }());
  });
}
