#include "collectives.hpp"

#include <optional>
#include <string>
#include <utility>

#include "compressor.hpp"
#include "group.hpp"
#include "nanobind/stl/vector.h"
#include "operation.hpp"
#include "request.hpp"
#include "result_array.hpp"
#include "stream.hpp"
#include "waiting.hpp"

namespace pith::python {

namespace {

using Self = nb::pointer_and_handle<Communicator>;

// What all calls have in common.
struct Options {
  bool async_op;
  nb::handle dtype;
  std::uintptr_t stream;
  bool reals = false;  // compressors know no complex numbers

  pithStream_t handle() const { return reinterpret_cast<pithStream_t>(stream); }
};

std::size_t elements(const ArrayArgument& array) { return array.items() * array.type().per_item; }

ArrayArgument input(const char* argument, nb::handle array, const Options& options,
                    Access access = Access::read) {
  return {argument, array, access, options.dtype, options.stream, options.reals};
}

ResultArray output(nb::handle x, const ArrayArgument& send, nb::handle out,
                   std::span<const std::int64_t> shape, const Options& options) {
  return result_array(x, send, out, shape, options.dtype, options.stream, options.reals);
}

void check_root(const char* argument, int root, const Communicator& comm) {
  if (root >= 0 && root < comm.size()) return;
  refuse(std::string(argument) + " is " + std::to_string(root) + ", expected 0 to " +
         std::to_string(comm.size() - 1));
}

// Begins the call by `start`, and ends it as the caller wishes: now, with the group, or in the
// background. `start` touches no Python object.
template <class Start>
nb::object perform(Self self, const Options& options, nb::object result, Held&& held,
                   const Start& start) {
  if (group_is_open()) {
    if (options.async_op) {
      raise(pithInvalidUsage,
            "async_op is set in a group, expected a group with async_op=True instead");
    }
    self.p->check(outcome_of(start()));
    held.communicator = nb::borrow(self.h);
    hold_in_group(std::move(held));
    return result;
  }
  const Driving driving(*self.p);
  if (!options.async_op) {
    self.p->check(without_gil(start));
    return result;
  }
  held.communicator = nb::borrow(self.h);
  std::vector<Held> all;
  all.push_back(std::move(held));
  return begin_flight(std::move(all), std::move(result), [&start](pithRequest_t* request) {
    // A call that is refused is the error of the group's end.
    if (const pithResult_t failed = pithGroupStart()) return failed;
    start();
    return pithGroupEndAsync(request);
  });
}

// How messages are coded; with None as `compressor` not at all.
struct Coding {
  explicit Coding(nb::handle compressor) {
    if (compressor.is_none()) return;
    Compressor* given = nullptr;
    if (!nb::try_cast(compressor, given) || !given) refuse("compressor is no pith.Compressor");
    by = given->handle();
    held = nb::borrow(compressor);
  }

  pithCompressor_t by = nullptr;
  nb::object held;
};

nb::object all_reduce_compressed(Self self, nb::handle x, nb::handle op, nb::handle out,
                                 nb::handle compressor, const Options& options) {
  Coding coding(compressor);
  const pithComm_t comm = self.p->handle();
  ArrayArgument send;
  ResultArray recv;
  if (!x.is_none()) {
    send = input("x", x, options);
    recv = output(x, send, out, send.shape(), options);
    check_overlap(send, recv.array, 0);
  } else {
    if (out.is_none()) refuse("out is None, expected an array, since x is None");
    recv = {nb::borrow(out), input("out", out, options, Access::write)};
  }
  const pithCompressor_t with = coding.by;
  const Operation operation(op, recv.array.type(), comm);
  const void* const from = send.data();
  void* const to = recv.array.data();
  const std::size_t count = elements(recv.array);
  const pithDataType_t type = recv.array.type().type;
  return perform(self, options, std::move(recv.object),
                 {{}, std::move(coding.held), std::move(send), std::move(recv.array)}, [&] {
                   return pithAllReduceCompressed(from, to, count, type, operation, with, comm,
                                                  options.handle());
                 });
}

// A call whose result is as long as its input. `call`: takes what pithAllReduce does.
template <class Call>
nb::object reduce_by(const Call& call, bool has_result, Self self, nb::handle x, nb::handle op,
                     nb::handle out, const Options& options) {
  const pithComm_t comm = self.p->handle();
  ArrayArgument send = input("x", x, options);
  const Operation operation(op, send.type(), comm);
  ResultArray recv{nb::none(), {}};
  if (has_result) {
    recv = output(x, send, out, send.shape(), options);
    check_overlap(send, recv.array, 0);
  }
  const void* const from = send.data();
  void* const to = recv.array.data();
  const std::size_t count = elements(send);
  const pithDataType_t type = send.type().type;
  return perform(self, options, std::move(recv.object),
                 {{}, {}, std::move(send), std::move(recv.array)},
                 [&] { return call(from, to, count, type, operation, comm, options.handle()); });
}

nb::object all_reduce(Self self, nb::handle x, nb::handle op, nb::handle out, nb::handle compressor,
                      bool async_op, nb::handle dtype, nb::handle stream) {
  const Options options{async_op, dtype, stream_of(stream), !compressor.is_none()};
  if (compressor.is_none()) return reduce_by(pithAllReduce, true, self, x, op, out, options);
  return all_reduce_compressed(self, x, op, out, compressor, options);
}

nb::object reduce(Self self, nb::handle x, int root, nb::handle op, nb::handle out, bool async_op,
                  nb::handle dtype, nb::handle stream) {
  const Options options{async_op, dtype, stream_of(stream)};
  check_root("root", root, *self.p);
  const auto call = [root](auto from, auto to, auto n, auto type, pithRedOp_t by, auto comm,
                           auto on) { return pithReduce(from, to, n, type, by, root, comm, on); };
  return reduce_by(call, root == self.p->rank(), self, x, op, out, options);
}

nb::object scan(Self self, nb::handle x, nb::handle op, nb::handle out, bool async_op,
                nb::handle dtype, nb::handle stream) {
  return reduce_by(pithScan, true, self, x, op, out, {async_op, dtype, stream_of(stream)});
}

nb::object exscan(Self self, nb::handle x, nb::handle op, nb::handle out, bool async_op,
                  nb::handle dtype, nb::handle stream) {
  const Options options{async_op, dtype, stream_of(stream)};
  return reduce_by(pithExScan, self.p->rank() > 0, self, x, op, out, options);
}

// Without `out`, x is the array of the result, on the root too.
nb::object broadcast(Self self, nb::handle x, int root, nb::handle out, nb::handle compressor,
                     bool async_op, nb::handle dtype, nb::handle stream) {
  const Options options{async_op, dtype, stream_of(stream), !compressor.is_none()};
  Coding coding(compressor);
  const pithCompressor_t with = coding.by;
  const pithComm_t comm = self.p->handle();
  check_root("root", root, *self.p);
  const bool is_root = root == self.p->rank();
  const bool in_place = out.is_none();
  ArrayArgument send = input("x", x, options, in_place && !is_root ? Access::write : Access::read);
  ResultArray recv{nb::borrow(x), {}};
  if (!in_place) {
    recv = output(x, send, out, send.shape(), options);
    check_overlap(send, recv.array, 0);
  }
  void* const from = send.data();
  void* const to = in_place ? from : recv.array.data();
  const std::size_t count = elements(send);
  const pithDataType_t type = send.type().type;
  return perform(self, options, std::move(recv.object),
                 {{}, std::move(coding.held), std::move(send), std::move(recv.array)}, [&] {
                   return with ? pithBroadcastCompressed(from, to, count, type, root, with, comm,
                                                         options.handle())
                               : pithBroadcast(from, to, count, type, root, comm, options.handle());
                 });
}

nb::object all_gather(Self self, nb::handle x, nb::handle out, nb::handle compressor, bool async_op,
                      nb::handle dtype, nb::handle stream) {
  const Options options{async_op, dtype, stream_of(stream), !compressor.is_none()};
  Coding coding(compressor);
  const pithCompressor_t with = coding.by;
  const pithComm_t comm = self.p->handle();
  ArrayArgument send = input("x", x, options);
  ResultArray recv = output(x, send, out, stacked(send.shape(), self.p->size()), options);
  check_overlap(send, recv.array, static_cast<std::size_t>(self.p->rank()) * send.bytes());
  const void* const from = send.data();
  void* const to = recv.array.data();
  const std::size_t count = elements(send);
  const pithDataType_t type = send.type().type;
  return perform(self, options, std::move(recv.object),
                 {{}, std::move(coding.held), std::move(send), std::move(recv.array)}, [&] {
                   return with ? pithAllGatherCompressed(from, to, count, type, with, comm,
                                                         options.handle())
                               : pithAllGather(from, to, count, type, comm, options.handle());
                 });
}

nb::object gather(Self self, nb::handle x, int root, nb::handle out, bool async_op,
                  nb::handle dtype, nb::handle stream) {
  const Options options{async_op, dtype, stream_of(stream)};
  const pithComm_t comm = self.p->handle();
  check_root("root", root, *self.p);
  ArrayArgument send = input("x", x, options);
  ResultArray recv{nb::none(), {}};
  if (root == self.p->rank()) {
    recv = output(x, send, out, stacked(send.shape(), self.p->size()), options);
    check_overlap(send, recv.array, static_cast<std::size_t>(root) * send.bytes());
  }
  const void* const from = send.data();
  void* const to = recv.array.data();
  const std::size_t count = elements(send);
  const pithDataType_t type = send.type().type;
  return perform(self, options, std::move(recv.object),
                 {{}, {}, std::move(send), std::move(recv.array)},
                 [&] { return pithGather(from, to, count, type, root, comm, options.handle()); });
}

nb::object reduce_scatter(Self self, nb::handle x, nb::handle op, nb::handle out,
                          nb::handle compressor, bool async_op, nb::handle dtype,
                          nb::handle stream) {
  const Options options{async_op, dtype, stream_of(stream), !compressor.is_none()};
  Coding coding(compressor);
  const pithCompressor_t with = coding.by;
  const pithComm_t comm = self.p->handle();
  ArrayArgument send = input("x", x, options);
  const Operation operation(op, send.type(), comm);
  ResultArray recv = output(x, send, out, cut("x", send.shape(), self.p->size()), options);
  check_overlap(recv.array, send, static_cast<std::size_t>(self.p->rank()) * recv.array.bytes());
  const void* const from = send.data();
  void* const to = recv.array.data();
  const std::size_t count = elements(recv.array);
  const pithDataType_t type = send.type().type;
  return perform(self, options, std::move(recv.object),
                 {{}, std::move(coding.held), std::move(send), std::move(recv.array)}, [&] {
                   return with ? pithReduceScatterCompressed(from, to, count, type, operation, with,
                                                             comm, options.handle())
                               : pithReduceScatter(from, to, count, type, operation, comm,
                                                   options.handle());
                 });
}

// The root's x is cut; the others pass the array of their part as `out`.
nb::object scatter(Self self, nb::handle x, int root, nb::handle out, bool async_op,
                   nb::handle dtype, nb::handle stream) {
  const Options options{async_op, dtype, stream_of(stream)};
  const pithComm_t comm = self.p->handle();
  check_root("root", root, *self.p);
  ArrayArgument send;
  ResultArray recv;
  if (root == self.p->rank()) {
    send = input("x", x, options);
    recv = output(x, send, out, cut("x", send.shape(), self.p->size()), options);
    check_overlap(recv.array, send, static_cast<std::size_t>(root) * recv.array.bytes());
  } else {
    if (out.is_none()) refuse("out is None, expected an array on every rank but the root");
    recv = {nb::borrow(out), input("out", out, options, Access::write)};
  }
  const void* const from = send.data();
  void* const to = recv.array.data();
  const std::size_t count = elements(recv.array);
  const pithDataType_t type = recv.array.type().type;
  return perform(self, options, std::move(recv.object),
                 {{}, {}, std::move(send), std::move(recv.array)},
                 [&] { return pithScatter(from, to, count, type, root, comm, options.handle()); });
}

nb::object all_to_all(Self self, nb::handle x, nb::handle out, nb::handle compressor, bool async_op,
                      nb::handle dtype, nb::handle stream) {
  const Options options{async_op, dtype, stream_of(stream), !compressor.is_none()};
  Coding coding(compressor);
  const pithCompressor_t with = coding.by;
  const pithComm_t comm = self.p->handle();
  ArrayArgument send = input("x", x, options);
  cut("x", send.shape(), self.p->size());
  ResultArray recv = output(x, send, out, send.shape(), options);
  if (self.p->size() > 1) check_overlap(send, recv.array, send.bytes());
  const void* const from = send.data();
  void* const to = recv.array.data();
  const std::size_t count = elements(send) / static_cast<std::size_t>(self.p->size());
  const pithDataType_t type = send.type().type;
  return perform(self, options, std::move(recv.object),
                 {{}, std::move(coding.held), std::move(send), std::move(recv.array)}, [&] {
                   return with ? pithAlltoAllCompressed(from, to, count, type, with, comm,
                                                        options.handle())
                               : pithAlltoAll(from, to, count, type, comm, options.handle());
                 });
}

// How many rows of an array, parts of its first axis, each rank has.
class RowCounts {
 public:
  // Raises unless there is a number for each rank, and `like` has rows.
  RowCounts(const char* argument, nb::handle given, const ArrayArgument& like, const Self& self)
      : argument_(argument), rank_(static_cast<std::size_t>(self.p->rank())) {
    if (like.shape().empty()) refuse("x has shape (), expected a first axis");
    if (!nb::try_cast(given, rows_)) refuse(argument_ + " is no sequence of whole numbers");
    if (static_cast<int>(rows_.size()) != self.p->size()) {
      refuse(argument_ + " has " + std::to_string(rows_.size()) + " elements, expected " +
             std::to_string(self.p->size()) + ", one for each rank");
    }
    std::size_t per_row = like.type().per_item;
    for (const std::int64_t extent : like.shape().subspan(1)) {
      per_row *= static_cast<std::size_t>(extent);
    }
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      if (rows_[r] < 0) refuse_count(r, "expected 0 or more");
      elements_.push_back(static_cast<std::size_t>(rows_[r]) * per_row);
      all_ += rows_[r];
      if (r < rank_) before_ += rows_[r];
    }
  }
  std::int64_t own() const { return rows_[rank_]; }
  std::int64_t all() const { return all_; }
  // The share of the rows, in bytes of an array that has all of them, before those of this rank.
  std::size_t offset_in(const ArrayArgument& whole) const {
    return all_ == 0
               ? 0
               : whole.bytes() / static_cast<std::size_t>(all_) * static_cast<std::size_t>(before_);
  }
  void expect_own(std::int64_t rows, const std::string& whose) const {
    if (own() != rows) refuse_count(rank_, "expected " + std::to_string(rows) + ", " + whose);
  }
  void expect_all(std::int64_t rows) const {
    if (all_ == rows) return;
    refuse("the sum of " + argument_ + " is " + std::to_string(all_) + ", expected " +
           std::to_string(rows) + ", the length of x");
  }
  std::vector<std::size_t> take() { return std::move(elements_); }

 private:
  [[noreturn]] void refuse_count(std::size_t rank, const std::string& expected) const {
    refuse(argument_ + "[" + std::to_string(rank) + "] is " + std::to_string(rows_[rank]) + ", " +
           expected);
  }

  std::string argument_;
  std::size_t rank_;
  std::vector<std::int64_t> rows_;
  std::vector<std::size_t> elements_;  // of the C API's arrays
  std::int64_t all_ = 0;
  std::int64_t before_ = 0;
};

// The shape with another number of rows.
Shape with_rows(std::span<const std::int64_t> shape, std::int64_t rows) {
  Shape other(shape.begin(), shape.end());
  other.front() = rows;
  return other;
}

nb::object all_gather_v(Self self, nb::handle x, nb::handle counts, nb::handle out, bool async_op,
                        nb::handle dtype, nb::handle stream) {
  const Options options{async_op, dtype, stream_of(stream)};
  const pithComm_t comm = self.p->handle();
  ArrayArgument send = input("x", x, options);
  RowCounts rows("counts", counts, send, self);
  rows.expect_own(send.shape().front(), "the length of x");
  ResultArray recv = output(x, send, out, with_rows(send.shape(), rows.all()), options);
  check_overlap(send, recv.array, rows.offset_in(recv.array));
  const void* const from = send.data();
  void* const to = recv.array.data();
  const std::vector<std::size_t> elements_of = rows.take();
  const pithDataType_t type = send.type().type;
  return perform(
      self, options, std::move(recv.object), {{}, {}, std::move(send), std::move(recv.array)}, [&] {
        return pithAllGatherV(from, to, elements_of.data(), nullptr, type, comm, options.handle());
      });
}

nb::object reduce_scatter_v(Self self, nb::handle x, nb::handle counts, nb::handle op,
                            nb::handle out, bool async_op, nb::handle dtype, nb::handle stream) {
  const Options options{async_op, dtype, stream_of(stream)};
  const pithComm_t comm = self.p->handle();
  ArrayArgument send = input("x", x, options);
  const Operation operation(op, send.type(), comm);
  RowCounts rows("counts", counts, send, self);
  rows.expect_all(send.shape().front());
  ResultArray recv = output(x, send, out, with_rows(send.shape(), rows.own()), options);
  check_overlap(recv.array, send, rows.offset_in(send));
  const void* const from = send.data();
  void* const to = recv.array.data();
  const std::vector<std::size_t> elements_of = rows.take();
  const pithDataType_t type = send.type().type;
  return perform(self, options, std::move(recv.object),
                 {{}, {}, std::move(send), std::move(recv.array)}, [&] {
                   return pithReduceScatterV(from, to, elements_of.data(), type, operation, comm,
                                             options.handle());
                 });
}

nb::object all_to_all_v(Self self, nb::handle x, nb::handle send_counts, nb::handle recv_counts,
                        nb::handle out, bool async_op, nb::handle dtype, nb::handle stream) {
  const Options options{async_op, dtype, stream_of(stream)};
  const pithComm_t comm = self.p->handle();
  ArrayArgument send = input("x", x, options);
  RowCounts leaving("send_counts", send_counts, send, self);
  RowCounts arriving("recv_counts", recv_counts, send, self);
  leaving.expect_all(send.shape().front());
  arriving.expect_own(leaving.own(), "what this rank sends itself");
  ResultArray recv = output(x, send, out, with_rows(send.shape(), arriving.all()), options);
  if (self.p->size() > 1) check_overlap(send, recv.array, recv.array.bytes());
  const void* const from = send.data();
  void* const to = recv.array.data();
  const std::vector<std::size_t> sent = leaving.take();
  const std::vector<std::size_t> received = arriving.take();
  const pithDataType_t type = send.type().type;
  return perform(self, options, std::move(recv.object),
                 {{}, {}, std::move(send), std::move(recv.array)}, [&] {
                   return pithAlltoAllV(from, sent.data(), nullptr, to, received.data(), nullptr,
                                        type, comm, options.handle());
                 });
}

nb::object send_to(Self self, nb::handle x, int peer, bool async_op, nb::handle dtype,
                   nb::handle stream) {
  const Options options{async_op, dtype, stream_of(stream)};
  const pithComm_t comm = self.p->handle();
  check_root("peer", peer, *self.p);
  ArrayArgument send = input("x", x, options);
  const void* const from = send.data();
  const std::size_t count = elements(send);
  const pithDataType_t type = send.type().type;
  return perform(self, options, nb::none(), {{}, {}, std::move(send), {}},
                 [&] { return pithSend(from, count, type, peer, comm, options.handle()); });
}

nb::object recv_from(Self self, nb::handle out, int peer, bool async_op, nb::handle dtype,
                     nb::handle stream) {
  const Options options{async_op, dtype, stream_of(stream)};
  const pithComm_t comm = self.p->handle();
  check_root("peer", peer, *self.p);
  ArrayArgument recv = input("out", out, options, Access::write);
  void* const to = recv.data();
  const std::size_t count = elements(recv);
  const pithDataType_t type = recv.type().type;
  return perform(self, options, nb::borrow(out), {{}, {}, {}, std::move(recv)},
                 [&] { return pithRecv(to, count, type, peer, comm, options.handle()); });
}

nb::object barrier(Self self, bool async_op) {
  const pithComm_t comm = self.p->handle();
  return perform(self, {async_op, nb::none(), 0}, nb::none(), {},
                 [&] { return pithBarrier(comm, nullptr); });
}

}  // namespace

void add_collectives(CommunicatorType& type) {
  const auto x = nb::arg("x");
  const auto op = nb::arg("op") = "sum";
  const auto out = nb::arg("out").none() = nb::none();
  const auto counts = nb::arg("counts");
  const auto root = nb::arg("root") = 0;
  const auto async_op = nb::arg("async_op") = false;
  const auto dtype = nb::arg("dtype").none() = nb::none();
  const auto stream = nb::arg("stream").none() = nb::none();
  const auto compressor = nb::arg("compressor").none() = nb::none();
  const nb::kw_only more;
  type.def("all_reduce", &all_reduce, nb::arg("x").none(), op, out, more, compressor, async_op,
           dtype, stream)
      .def("reduce", &reduce, x, root, op, out, more, async_op, dtype, stream)
      .def("scan", &scan, x, op, out, more, async_op, dtype, stream)
      .def("exscan", &exscan, x, op, out, more, async_op, dtype, stream)
      .def("broadcast", &broadcast, x, root, out, more, compressor, async_op, dtype, stream)
      .def("all_gather", &all_gather, x, out, more, compressor, async_op, dtype, stream)
      .def("gather", &gather, x, root, out, more, async_op, dtype, stream)
      .def("reduce_scatter", &reduce_scatter, x, op, out, more, compressor, async_op, dtype, stream)
      .def("scatter", &scatter, nb::arg("x").none(), root, out, more, async_op, dtype, stream)
      .def("all_to_all", &all_to_all, x, out, more, compressor, async_op, dtype, stream)
      .def("all_gather_v", &all_gather_v, x, counts, out, more, async_op, dtype, stream)
      .def("reduce_scatter_v", &reduce_scatter_v, x, counts, op, out, more, async_op, dtype, stream)
      .def("all_to_all_v", &all_to_all_v, x, nb::arg("send_counts"), nb::arg("recv_counts"), out,
           more, async_op, dtype, stream)
      .def("send", &send_to, x, nb::arg("peer"), more, async_op, dtype, stream)
      .def("recv", &recv_from, nb::arg("out"), nb::arg("peer"), more, async_op, dtype, stream)
      .def("barrier", &barrier, more, async_op);
}

}  // namespace pith::python
