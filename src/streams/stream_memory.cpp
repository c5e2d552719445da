#include "streams/stream_memory.hpp"

#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "cuda/device.hpp"
#include "cuda/stream_gate.hpp"

namespace pith {

namespace {

bool host_can_read(const void* memory) {
  std::byte byte{};
  const iovec here{&byte, 1};
  const iovec there{const_cast<void*>(memory), 1};
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1;
}

// Calls see() for each buffer of a call.
template <class See>
void for_each_memory(const CollectiveArgs& args, const See& see) {
  see(args.send.data);
  see(args.recv.data);
}
template <class See>
void for_each_memory(const CompressedArgs& args, const See& see) {
  for (const CompressedTensor& tensor : args.tensors) {
    see(tensor.send);
    see(tensor.recv);
    see(tensor.sparse.values);
    see(tensor.sparse.indices);
    see(tensor.sparse.count);
  }
}
template <class See>
void for_each_memory(const PairArgs& args, const See& see) {
  for (const Message& message : args.messages) see(message.data.data);
}

// The first device buffer of the call; null if it has none.
Expected<const void*> device_memory_of(const cuda::Driver& driver, const CallArgs& args) {
  const void* found = nullptr;
  Error error;
  const auto look_at = [&](const void* memory) {
    if (found || error || !memory) return;
    const Expected<cuda::Where> where = cuda::where_is(driver, memory);
    if (!where) error = where.error();
    if (where && *where == cuda::Where::device) found = memory;
  };
  std::visit([&](const auto& kind) { for_each_memory(kind, look_at); }, args);
  if (error) return error;
  return found;
}

// All compressed tensors of a group are one call and lie in one kind of memory. A call on the
// device can write the number of pairs to any memory, a call on the host only to host memory.
Error place_kind(CompressedArgs& args, const cuda::Driver& driver, Compute& device) {
  const void* reached = nullptr;
  const void* plain = nullptr;
  const void* told = nullptr;  // a count on a device
  for (CompressedTensor& tensor : args.tensors) {
    const SparseOutput& pairs = tensor.sparse;
    const void* const indices = pairs.capacity > 0 ? pairs.indices : nullptr;
    const void* const values = pairs.capacity > 0 ? pairs.values : nullptr;
    for (const void* memory : {static_cast<const void*>(tensor.send),
                               static_cast<const void*>(tensor.recv), indices, values}) {
      if (!memory || tensor.count == 0) continue;
      const Expected<cuda::Where> where = cuda::where_is(driver, memory);
      if (!where) return where.error();
      (*where == cuda::Where::pageable ? plain : reached) = memory;
    }
    if (!pairs.count) continue;
    const Expected<cuda::Where> where = cuda::where_is(driver, pairs.count);
    if (!where) return where.error();
    if (*where != cuda::Where::device) continue;
    tensor.sparse.counts_on_device = true;
    told = pairs.count;
  }
  if (!reached && !told) return {};
  if (plain) {
    return {Code::invalid_argument,
            fmt::format("a compressed call has pageable host memory ({}) and other memory ({}), "
                        "expected one kind in all of a group",
                        plain, reached ? reached : told)};
  }
  for (CompressedTensor& tensor : args.tensors) tensor.device = &device;
  return {};
}

// Each message stages its own memory, so each may lie in any kind.
Error place_kind(PairArgs& args, const cuda::Driver& driver, Compute&) {
  for (Message& message : args.messages) {
    if (!message.data.data || message.data.size == 0) continue;
    const Expected<cuda::Where> where = cuda::where_is(driver, message.data.data);
    if (!where) return where.error();
    message.data.kind = *where == cuda::Where::pageable ? MemoryKind::host : MemoryKind::cuda;
  }
  return {};
}

Error place_kind(CollectiveArgs& args, const cuda::Driver& driver, Compute&) {
  bool reached = false;
  bool plain = false;
  bool scalar_apart = false;
  for (Bytes* memory : {&args.send, &args.recv}) {
    if (!memory->data || args.count == 0) continue;
    const Expected<cuda::Where> where = cuda::where_is(driver, memory->data);
    if (!where) return where.error();
    const bool pageable = *where == cuda::Where::pageable;
    memory->kind = pageable ? MemoryKind::host : MemoryKind::cuda;
    (pageable ? plain : reached) = true;
  }
  // A rank whose block is empty uses its peers' memory as the others do.
  if (args.uneven.used() && reached) args.send.kind = args.recv.kind = MemoryKind::cuda;
  if (plain && args.factor.where) {
    const Expected<cuda::Where> where = cuda::where_is(driver, args.factor.where);
    if (!where) return where.error();
    scalar_apart = *where == cuda::Where::device;
  }
  if (scalar_apart) {
    return {Code::invalid_argument,
            fmt::format("op has its scalar in device memory ({}), expected device buffers too",
                        static_cast<const void*>(args.factor.where))};
  }
  if (!reached || !plain) return {};
  return {Code::invalid_argument,
          fmt::format("send is {} and recv is {}: one is pageable host memory, the other is not",
                      static_cast<const void*>(args.send.data),
                      static_cast<const void*>(args.recv.data))};
}

bool is_on_device(const CollectiveArgs& args) {
  return args.send.kind == MemoryKind::cuda || args.recv.kind == MemoryKind::cuda;
}
bool is_on_device(const CompressedArgs& args) { return args.tensors[0].device != nullptr; }
bool is_on_device(const PairArgs& args) {
  const auto is_there = [](const Message& one) { return one.data.kind == MemoryKind::cuda; };
  return std::ranges::any_of(args.messages, is_there);
}

}  // namespace

bool uses_device(const CallArgs& args) {
  return std::visit([](const auto& kind) { return is_on_device(kind); }, args);
}

Expected<cuda::Device*> device_of(const CallArgs& args, void* raw_stream) {
  const auto stream = static_cast<cuda::CUstream>(raw_stream);
  if (!cuda::is_default(stream)) return cuda::Device::of_stream(stream);
  const Expected<const cuda::Driver*> driver = cuda::driver();
  if (!driver) return driver.error();
  const Expected<const void*> memory = device_memory_of(**driver, args);
  if (!memory) return memory.error();
  return *memory ? cuda::Device::of_memory(*memory) : cuda::Device::of_stream(stream);
}

Error place(CallArgs& args, const cuda::Driver& driver, Compute& device) {
  return std::visit([&](auto& kind) { return place_kind(kind, driver, device); }, args);
}

Error check_streams() { return cuda::driver().error(); }

bool look_for_device_memory() {
  cuda::look_for_driver();
  return cuda::known_driver() != nullptr;
}

void* current_context() {
  cuda::look_for_driver();
  const cuda::Driver* driver = cuda::known_driver();
  cuda::CUcontext context = nullptr;
  const bool known = driver && driver->ctx_get_current(&context) == cuda::kSuccess;
  return known ? context : nullptr;
}

CurrentContext::CurrentContext(void* context) {
  if (!context) return;
  const auto given = static_cast<cuda::CUcontext>(context);
  pushed_ = cuda::known_driver()->ctx_push(given) == cuda::kSuccess;
}

CurrentContext::~CurrentContext() {
  cuda::CUcontext popped = nullptr;
  if (pushed_) cuda::known_driver()->ctx_pop(&popped);
}

std::vector<std::string> devices_in_use() {
  const bool has_context = current_context() != nullptr;
  const cuda::Driver* driver = cuda::known_driver();
  cuda::CUdevice device = 0;
  if (has_context && driver->ctx_get_device(&device) == cuda::kSuccess) {
    return {cuda::uuid_of(*driver, device)};
  }
  int devices = 0;
  if (!driver || driver->device_count(&devices) != cuda::kSuccess) return {};
  std::vector<std::string> found;
  for (int ordinal = 0; ordinal < devices; ++ordinal) {
    unsigned flags = 0;
    int active = 0;
    const bool asked = driver->device_get(&device, ordinal) == cuda::kSuccess &&
                       driver->primary_ctx_state(device, &flags, &active) == cuda::kSuccess;
    if (asked && active != 0) found.push_back(cuda::uuid_of(*driver, device));
  }
  return found;
}

bool are_apart(const void* send, const void* recv) {
  const cuda::Driver* driver = cuda::known_driver();
  if (!driver) return false;
  const Expected<cuda::Where> from = cuda::where_is(*driver, send);
  const Expected<cuda::Where> to = cuda::where_is(*driver, recv);
  if (!from || !to) return true;
  return (*from == cuda::Where::pageable) != (*to == cuda::Where::pageable);
}

Expected<std::optional<std::uint64_t>> capture_of(const CallArgs& args, void* stream) {
  const Expected<cuda::Device*> device = device_of(args, stream);
  if (!device) return device.error();
  const cuda::Current current(**device);
  const Expected<cuda::CaptureInfo> info =
      cuda::capture_of((*device)->driver(), static_cast<cuda::CUstream>(stream));
  if (!info) return info.error();
  return info->active ? std::optional(info->id) : std::nullopt;
}

void* legacy_stream() { return reinterpret_cast<void*>(cuda::kStreamLegacy); }

bool names_memory(const CallArgs& args) {
  bool any = false;
  const auto see = [&any](const void* memory) { any |= memory != nullptr; };
  std::visit([&](const auto& kind) { for_each_memory(kind, see); }, args);
  return any;
}

Expected<bool> is_device_memory(const void* memory) {
  const cuda::Driver* driver = cuda::known_driver();
  if (!driver) return false;
  const Expected<cuda::Where> where = cuda::where_is(*driver, memory);
  if (where) return *where == cuda::Where::device;
  // A driver that has failed or lacks a context is no reason to refuse a call on host memory.
  if (host_can_read(memory)) return false;
  return where.error();
}

}  // namespace pith
