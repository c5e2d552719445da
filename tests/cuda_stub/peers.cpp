// Memory of other devices and of other processes. A handle names a part of its process's arena,
// which the opener maps through /proc.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/cuda_stub/arena.hpp"
#include "tests/cuda_stub/internal.hpp"

namespace pith::cuda {

namespace {

struct Handle {
  pid_t process = 0;
  int fd = -1;
  ino_t file = 0;  // tells the process from a later one of its number
  std::size_t offset = 0;
  std::size_t bytes = 0;
  std::uint64_t id = 0;
  CUdevice device = 0;
};
static_assert(sizeof(Handle) <= sizeof(CUipcMemHandle));

struct Import {
  Handle handle;
  CUcontext context = nullptr;
  int opened = 0;
};

// By address; State::mutex held.
std::map<std::uintptr_t, Import>& imports() {
  static auto* const all = new std::map<std::uintptr_t, Import>;
  return *all;
}

std::size_t mapped_bytes(const Handle& handle) { return Arena::page_bytes + handle.bytes; }

// The data, or null where the memory is gone.
std::byte* map(const Handle& handle) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.process, handle.fd);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  struct stat status = {};
  const bool same = fstat(fd, &status) == 0 && status.st_ino == handle.file;
  void* memory = same ? mmap(nullptr, mapped_bytes(handle), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                             static_cast<off_t>(handle.offset))
                      : MAP_FAILED;
  close(fd);
  if (memory == MAP_FAILED) return nullptr;
  auto* start = static_cast<std::byte*>(memory);
  const auto* header = reinterpret_cast<const ArenaHeader*>(start);
  if (header->id == handle.id && header->bytes == handle.bytes) return start + Arena::page_bytes;
  munmap(memory, mapped_bytes(handle));
  return nullptr;
}

bool same_memory(const Handle& one, const Handle& other) {
  return one.process == other.process && one.file == other.file && one.id == other.id;
}

// Whether other memory of its block is open.
bool shares_open_block(const Handle& handle) {
  constexpr std::size_t block = std::size_t{2} << 20;
  for (const auto& [base, import] : imports()) {
    const Handle& other = import.handle;
    const bool same_file = other.process == handle.process && other.file == handle.file;
    if (same_file && other.offset / block == handle.offset / block) return true;
  }
  return false;
}

bool reaches(CUcontext context, CUdevice device) {
  return context->device == device || state().peers_reach;
}

}  // namespace

extern "C" {

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (handle == nullptr) return kErrorInvalidValue;
  Arena& arena = Arena::process();
  struct stat status = {};
  if (fstat(arena.fd(), &status) != 0) return kErrorNotSupported;
  std::lock_guard lock(state().mutex);
  std::uintptr_t base = 0;
  const Range* range = range_at(address, base);
  if (range == nullptr || range->type != kMemoryTypeDevice || range->imported || range->disowned) {
    return kErrorInvalidValue;
  }
  const Handle named{getpid(),
                     arena.fd(),
                     status.st_ino,
                     arena.offset_of(reinterpret_cast<void*>(base)),
                     range->bytes,
                     range->id,
                     range->context->device};
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &named, sizeof named);
  return kSuccess;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle raw, unsigned flags) {
  if (CUresult r = enter_unsafe(Call::alloc); r != kSuccess) return r;
  CUcontext context = current_context();
  // The driver knows its own process's memory by its address only.
  Handle handle;
  std::memcpy(static_cast<void*>(&handle), &raw, sizeof handle);
  if (context == nullptr || handle.process == getpid()) return kErrorInvalidContext;
  if (address == nullptr || flags != kIpcLazyPeerAccess) return kErrorInvalidValue;
  std::lock_guard lock(state().mutex);
  if (!reaches(context, handle.device)) return kErrorPeerAccessUnsupported;
  ++state().counters.ipc_opens;
  for (auto& [known, import] : imports()) {
    if (import.context != context || !same_memory(import.handle, handle)) continue;
    ++import.opened;
    *address = known;
    return kSuccess;
  }
  if (state().blocks_open_once && shares_open_block(handle)) return kErrorAlreadyMapped;
  std::byte* memory = map(handle);
  if (memory == nullptr) return kErrorMapFailed;
  const auto base = reinterpret_cast<std::uintptr_t>(memory);
  imports()[base] = Import{handle, context, 1};
  state().ranges[base] =
      Range{handle.bytes, kMemoryTypeDevice, false, true, context, state().next_id++};
  *address = base;
  return kSuccess;
}

// Waits for the context, as cuMemFree does: whether the driver always does so is not said.
CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  if (CUresult r = enter_unsafe(Call::free); r != kSuccess) return r;
  const auto base = static_cast<std::uintptr_t>(address);
  Import closed;
  {
    std::lock_guard lock(state().mutex);
    const auto found = imports().find(base);
    if (found == imports().end()) return kErrorInvalidValue;
    ++state().counters.ipc_closes;
    if (--found->second.opened > 0) return kSuccess;
    closed = found->second;
    imports().erase(found);
    state().ranges.erase(base);
  }
  drain(closed.context);
  munmap(reinterpret_cast<std::byte*>(base) - Arena::page_bytes, mapped_bytes(closed.handle));
  return kSuccess;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  std::lock_guard lock(state().mutex);
  const auto count = static_cast<CUdevice>(state().contexts.size());
  if (device < 0 || device >= count || peer < 0 || peer >= count) return kErrorInvalidDevice;
  if (can == nullptr) return kErrorInvalidValue;
  *can = device != peer && state().peers_reach ? 1 : 0;
  return kSuccess;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  if (CUresult r = enter_unsafe(Call::alloc); r != kSuccess) return r;
  CUcontext context = current_context();
  if (context == nullptr || peer == nullptr) return kErrorInvalidContext;
  if (flags != 0) return kErrorInvalidValue;
  std::lock_guard lock(state().mutex);
  if (peer == context || !state().peers_reach) return kErrorPeerAccessUnsupported;
  return context->peers.insert(peer).second ? kSuccess : kErrorPeerAccessAlreadyEnabled;
}

}  // extern "C"

}  // namespace pith::cuda
