#include "nccl/fallback/fallback.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/log.hpp"
#include "streams/stream_memory.hpp"

namespace pith::nccl {

namespace {

constexpr unsigned bit(Kind kind) { return 1u << static_cast<unsigned>(kind); }

std::string in_lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

Expected<unsigned> read_kinds(std::string_view text) {
  unsigned kinds = 0;
  while (true) {
    const std::string_view name = text.substr(0, text.find(','));
    unsigned found = 0;
    std::string known;
    for (std::size_t k = 0; k < kind_count; ++k) {
      const std::string one = in_lower_case(name_of(static_cast<Kind>(k)));
      if (one == name) found = 1u << k;
      known += ", " + one;
    }
    if (found == 0) {
      return Error(Code::invalid_argument,
                   fmt::format("PITH_NCCL_FALLBACK_FOR has \"{}\", expected auto, all, or some of "
                               "{}",
                               name, known.substr(2)));
    }
    kinds |= found;
    if (name.size() == text.size()) return kinds;
    text.remove_prefix(name.size() + 1);
  }
}

// Send and recv belong together, as do the two names of broadcast.
unsigned with_twins(unsigned kinds) {
  if ((kinds & (bit(Kind::send) | bit(Kind::recv))) != 0)
    kinds |= bit(Kind::send) | bit(Kind::recv);
  const unsigned broadcasts = bit(Kind::broadcast) | bit(Kind::bcast);
  return (kinds & broadcasts) != 0 ? kinds | broadcasts : kinds;
}

// The pointer that is valid on every rank; the other one may be arbitrary except on the root.
const void* memory_on_all(const NcclCall& call) {
  const bool from_root =
      (bit(call.kind) & (bit(Kind::broadcast) | bit(Kind::bcast) | bit(Kind::scatter))) != 0;
  const void* const first = from_root ? call.recv : call.send;
  if (first) return first;
  return from_root ? call.send : call.recv;
}

template <class Function>
bool find(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(dlsym(library, name));
  return out != nullptr;
}

}  // namespace

Expected<std::unique_ptr<Fallback>> Fallback::load(const std::string& path,
                                                   const std::string& for_what,
                                                   const std::string& lines) {
  const auto refuse = [&](const std::string& what) {
    return Error(Code::invalid_argument,
                 fmt::format("PITH_NCCL_FALLBACK is \"{}\", expected the path of another "
                             "libnccl.so.2: {}",
                             path, what));
  };
  auto fallback = std::make_unique<Fallback>();
  fallback->path_ = path;
  fallback->kinds_ = ~0u;
  if (for_what != "auto" && for_what != "all") {
    const Expected<unsigned> kinds = read_kinds(for_what);
    if (!kinds) return kinds.error();
    fallback->kinds_ = with_twins(*kinds);
  }
  if (!lines.empty()) {
    const Expected<Lines> read = Lines::read(lines);
    if (!read) return read.error();
    fallback->lines_ = *read;
    fallback->by_model_ = for_what == "auto";
  }
  // RTLD_DEEPBIND: otherwise its own calls of public names would resolve to ours.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (!library) return refuse(dlerror());
  const char* missing = nullptr;
#define NCCL_FALLBACK_FIND(name) \
  if (!find(library, #name, fallback->name)) missing = #name;
  NCCL_FALLBACK_FUNCTIONS(NCCL_FALLBACK_FIND)
  const char* const needed = missing;
  NCCL_FALLBACK_NEWER_FUNCTIONS(NCCL_FALLBACK_FIND)
  missing = needed;
#undef NCCL_FALLBACK_FIND
  if (!fallback->ncclAlltoAll) fallback->kinds_ &= ~bit(Kind::alltoall);
  if (!fallback->ncclGather) fallback->kinds_ &= ~bit(Kind::gather);
  if (!fallback->ncclScatter) fallback->kinds_ &= ~bit(Kind::scatter);
  const bool is_us = !missing && (fallback->ncclGetVersion == &::ncclGetVersion ||
                                  fallback->ncclGetVersion == &::pncclGetVersion);
  if (!missing && !is_us) return fallback;
  dlclose(library);
  return refuse(is_us ? "it is this one" : fmt::format("it lacks {}", missing));
}

// All messages take the same library, since the two ends of a message may state different lengths.
bool Fallback::is_worth_it(const NcclCall& call, const Communicator& communicator) const {
  if (!by_model_ || is_message(call.kind)) return true;
  if (call.type < 0 || call.type >= ncclNumTypes) return true;  // it will be refused
  const std::size_t bytes = call.count * size_of(static_cast<DType>(call.type));
  return is_faster_there(*lines_, communicator.links().model().shape(bytes),
                         collective_of(call.kind));
}

bool Fallback::has(Kind kind) const { return (kinds_ & bit(kind)) != 0; }

bool Fallback::takes(const NcclCall& call, const Communicator& communicator) const {
  if (!has(call.kind)) return false;
  // An empty call's pointers say nothing and may differ between ranks.
  if (call.count == 0) return true;
  const void* const memory = memory_on_all(call);
  if (!memory) return false;
  look_for_device_memory();
  const Expected<bool> on_device = is_device_memory(memory);
  return on_device && *on_device && is_worth_it(call, communicator);
}

void Fallback::announce(Kind kind, bool there) const {
  const unsigned mask = bit(kind);
  if ((announced_[there ? 1 : 0].fetch_or(mask) & mask) != 0) return;
  log(LogLevel::info,
      fmt::format("{} is served by {}", name_of(kind), there ? path_ : std::string("Pith")));
}

// A user's operation is created in the other library for the duration of the call, which copies it.
ncclResult_t Fallback::issue(const NcclCall& call, const std::optional<Factor>& factor,
                             ncclComm_t comm) const {
  ncclRedOp_t op = call.op;
  if (factor) {
    Factor scale = *factor;
    const bool immediate = scale.where == nullptr;
    void* scalar =
        immediate ? static_cast<void*>(&scale.bits) : const_cast<std::byte*>(scale.where);
    const ncclResult_t result = ncclRedOpCreatePreMulSum(
        &op, scalar, call.type, immediate ? ncclScalarHostImmediate : ncclScalarDevice, comm);
    if (result != ncclSuccess) return result;
  }
  const auto run = [&]() -> ncclResult_t {
    const std::size_t n = call.count;
    switch (call.kind) {
      case Kind::allreduce:
        return ncclAllReduce(call.send, call.recv, n, call.type, op, comm, call.stream);
      case Kind::broadcast:
        return ncclBroadcast(call.send, call.recv, n, call.type, call.root, comm, call.stream);
      case Kind::bcast:
        return ncclBroadcast(call.recv, call.recv, n, call.type, call.root, comm, call.stream);
      case Kind::reduce:
        return ncclReduce(call.send, call.recv, n, call.type, op, call.root, comm, call.stream);
      case Kind::allgather:
        return ncclAllGather(call.send, call.recv, n, call.type, comm, call.stream);
      case Kind::reduce_scatter:
        return ncclReduceScatter(call.send, call.recv, n, call.type, op, comm, call.stream);
      case Kind::alltoall:
        return ncclAlltoAll(call.send, call.recv, n, call.type, comm, call.stream);
      case Kind::gather:
        return ncclGather(call.send, call.recv, n, call.type, call.root, comm, call.stream);
      case Kind::scatter:
        return ncclScatter(call.send, call.recv, n, call.type, call.root, comm, call.stream);
      case Kind::send:
        return ncclSend(call.send, n, call.type, call.root, comm, call.stream);
      case Kind::recv:
        return ncclRecv(call.recv, n, call.type, call.root, comm, call.stream);
    }
    return ncclInternalError;
  };
  const ncclResult_t result = run();
  if (factor) ncclRedOpDestroy(op, comm);
  return result;
}

Error Fallback::error_of(ncclResult_t result) const {
  if (result == ncclSuccess) return {};
  return {static_cast<Code>(result), ncclGetLastError(nullptr)};
}

Error Fallback::in_group(const std::function<Error()>& issue) const {
  if (Error error = error_of(ncclGroupStart())) return error;
  Error error = issue();
  const Error ended = error_of(ncclGroupEnd());
  return error ? error : ended;
}

}  // namespace pith::nccl
