#include "cuda/device.hpp"

#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <map>
#include <memory>

namespace pith::cuda {

namespace {

constexpr std::size_t slots_at_once = 256;

std::atomic<const Driver*> known{nullptr};

// Loads the driver unless it is loaded. Failure is not cached: the application may load a driver
// later from a path of its own. Never destroyed: the application's streams may outlive our statics.
void load(std::string& why) {
  static auto& driver = *new Driver;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (known_driver() || !load_driver(driver, why)) return;
  known.store(&driver, std::memory_order_release);
}

// Unchanged if no library, hence no driver, was loaded since; costs some 10 ns.
unsigned long long libraries_loaded() {
  unsigned long long loaded = 0;
  const auto read = [](dl_phdr_info* any, std::size_t, void* out) {
    *static_cast<unsigned long long*>(out) = any->dlpi_adds;
    return 1;  // the counter is global: one entry suffices
  };
  dl_iterate_phdr(read, &loaded);
  return loaded;
}

std::mutex devices_mutex;

// Never destroyed, as the driver above.
std::map<CUcontext, std::unique_ptr<Device>>& devices() {
  static auto& known_devices = *new std::map<CUcontext, std::unique_ptr<Device>>;
  return known_devices;
}

// Devices whose context no longer exists; never destroyed either.
std::vector<std::unique_ptr<Device>>& dead_devices() {
  static auto& dead = *new std::vector<std::unique_ptr<Device>>;
  return dead;
}

// Memory of pools and memory mapped by hand belongs to a device but to no context. It is assigned
// the current context if that is the device's, else the device's primary context.
Expected<CUcontext> context_of(const Driver& driver, CUdeviceptr memory) {
  CUcontext context = nullptr;
  CUresult result = driver.pointer_attribute(&context, kPointerContext, memory);
  if (result == kSuccess && context) return context;
  int ordinal = 0;
  result = driver.pointer_attribute(&ordinal, kPointerDeviceOrdinal, memory);
  CUdevice device = 0;
  if (result == kSuccess) result = driver.device_get(&device, ordinal);
  CUdevice current = 0;
  const bool has_current = result == kSuccess && driver.ctx_get_current(&context) == kSuccess &&
                           context && driver.ctx_get_device(&current) == kSuccess;
  if (has_current && current == device) return context;
  if (result == kSuccess) return primary_context(driver, device);
  return Error(Code::cuda, fmt::format("the context of device memory {:#x}: {}", memory,
                                       driver.describe(result)));
}

// Registered or write-combined host memory may have another address on devices, or none. The driver
// answers for the current context; without one the addresses count as equal.
bool is_mapped_elsewhere(const Driver& driver, const void* memory) {
  CUcontext context = nullptr;
  if (driver.ctx_get_current(&context) != kSuccess || !context) return false;
  CUdeviceptr mapped = 0;
  const CUresult result =
      driver.pointer_attribute(&mapped, kPointerDevicePointer, address_of(memory));
  return result == kErrorInvalidValue || (result == kSuccess && mapped != address_of(memory));
}

}  // namespace

const Driver* known_driver() { return known.load(std::memory_order_acquire); }

void look_for_driver() {
  static std::atomic<unsigned long long> looked_at{0};
  if (known_driver()) return;
  const unsigned long long now = libraries_loaded();
  if (looked_at.load(std::memory_order_acquire) == now) return;
  if (void* const present = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)) {
    std::string why;
    load(why);
    dlclose(present);
  }
  looked_at.store(now, std::memory_order_release);
}

Expected<const Driver*> driver() {
  std::string why;
  if (!known_driver()) load(why);
  const Driver* const found = known_driver();
  if (!found) return Error(Code::cuda, fmt::format("there is no CUDA driver: {}", why));
  const CUresult result = found->init(0);
  if (result == kSuccess) return found;
  return Error(Code::cuda, fmt::format("cuInit: {}", found->describe(result)));
}

unsigned long long id_of(const Driver& driver, CUcontext context) {
  unsigned long long id = 0;
  const bool told = driver.ctx_get_id && driver.ctx_get_id(context, &id) == kSuccess;
  return told ? id : 0;
}

std::string uuid_of(const Driver& driver, CUdevice device) {
  CUuuid uuid{};
  const bool told = driver.device_get_uuid && driver.device_get_uuid(&uuid, device) == kSuccess;
  return told ? fmt::format("{:02x}", fmt::join(uuid.bytes, "")) : "";
}

// Retained once per device, and again after somebody has reset the device.
Expected<CUcontext> primary_context(const Driver& driver, CUdevice device) {
  static std::mutex mutex;
  struct Held {
    CUcontext context;
    unsigned long long id;
  };
  static auto& held = *new std::map<CUdevice, Held>;
  const std::lock_guard lock(mutex);
  unsigned flags = 0;
  int active = 0;
  const auto found = held.find(device);
  const bool holds = found != held.end() &&
                     driver.primary_ctx_state(device, &flags, &active) == kSuccess && active != 0 &&
                     id_of(driver, found->second.context) == found->second.id;
  if (holds) return found->second.context;
  CUcontext context = nullptr;
  const CUresult result = driver.primary_ctx_retain(&context, device);
  if (result == kSuccess) {
    held[device] = {context, id_of(driver, context)};
    return context;
  }
  return Error(Code::cuda,
               fmt::format("the context of device {}: {}", device, driver.describe(result)));
}

Expected<Where> where_is(const Driver& driver, const void* memory) {
  unsigned type = 0;
  const auto ask = [&] {
    return driver.pointer_attribute(&type, kPointerMemoryType, address_of(memory));
  };
  CUresult result = ask();
  if (result == kErrorInvalidContext) {
    if (const Device* const any = Device::any()) {
      const Current current(*any);
      result = ask();
    }
  }
  if (result == kSuccess && type == kMemoryTypeDevice) return Where::device;
  if (result == kSuccess) {
    return is_mapped_elsewhere(driver, memory) ? Where::pageable : Where::pinned;
  }
  // A driver that is not initialised in this process, or has shut down, owns no memory.
  const bool has_none = result == kErrorNotInitialized || result == kErrorDeinitialized;
  if (result == kErrorInvalidValue || has_none) return Where::pageable;
  return Error(Code::cuda,
               fmt::format("cuPointerGetAttribute of {}: {}", memory, driver.describe(result)));
}

Expected<Device*> Device::of_stream(CUstream stream) {
  const Expected<const Driver*> found = cuda::driver();
  if (!found) return found.error();
  CUcontext context = nullptr;
  const CUresult result = (*found)->stream_get_ctx(stream, &context);
  if (result != kSuccess) {
    const char* const what =
        is_default(stream) ? "stands for one of the current context" : "is no CUDA stream";
    return Error(Code::invalid_argument, fmt::format("stream {} {}: {}", static_cast<void*>(stream),
                                                     what, (*found)->describe(result)));
  }
  return find(**found, context);
}

Expected<Device*> Device::of_memory(const void* memory) {
  const Expected<const Driver*> found = cuda::driver();
  if (!found) return found.error();
  const Expected<CUcontext> context = context_of(**found, address_of(memory));
  if (!context) return context.error();
  return find(**found, *context);
}

Expected<Device*> Device::of_context(CUcontext context) {
  const Expected<const Driver*> found = cuda::driver();
  if (!found) return found.error();
  return find(**found, context);
}

Device* Device::find(const Driver& driver, CUcontext context) {
  const unsigned long long id = id_of(driver, context);
  const std::lock_guard lock(devices_mutex);
  std::unique_ptr<Device>& device = devices()[context];
  if (device && device->id_ != id) dead_devices().push_back(std::move(device));
  if (!device) device.reset(new Device(driver, context, id));
  return device.get();
}

Device* Device::any() {
  const std::lock_guard lock(devices_mutex);
  return devices().empty() ? nullptr : devices().begin()->second.get();
}

Error Device::error(const char* what, CUresult result) const {
  return {Code::cuda, fmt::format("{}: {}", what, driver_.describe(result))};
}

std::string Device::uuid() const {
  const Current current(*this);
  CUdevice device = 0;
  return driver_.ctx_get_device(&device) == kSuccess ? uuid_of(driver_, device) : "";
}

Expected<const KernelSet*> Device::kernels() {
  const std::lock_guard loading(loading_);
  if (!kernels_) {
    const Current current(*this);
    const RelaxedCapture relaxed(driver_);
    Expected<std::unique_ptr<KernelSet>> loaded = KernelSet::load(driver_);
    if (!loaded) return loaded.error();
    const std::lock_guard lock(mutex_);
    kernels_ = std::move(*loaded);
  }
  return kernels_.get();
}

Expected<CUfunction> Device::worker() {
  const std::lock_guard loading(loading_);
  if (!worker_) {
    const Current current(*this);
    const RelaxedCapture relaxed(driver_);
    const Expected<CUfunction> loaded = KernelSet::load_worker(driver_);
    if (!loaded) return loaded.error();
    worker_ = *loaded;
  }
  return worker_;
}

CUdevice Device::ordinal() const {
  const Current current(*this);
  CUdevice device = 0;
  return driver_.ctx_get_device(&device) == kSuccess ? device : 0;
}

CUresult Device::failure(CUstream stream) const {
  const Current current(*this);
  const RelaxedCapture relaxed(driver_);
  const CUresult state = driver_.stream_query(stream);
  const bool of_capture = state >= kErrorCaptureUnsupported && state <= kErrorCaptureWrongThread;
  return state == kErrorNotReady || of_capture ? kSuccess : state;
}

unsigned Device::grant_blocks(const Turn& until, CUstream stream, unsigned wanted) {
  constexpr unsigned least_budget = 8;
  const std::lock_guard lock(mutex_);
  const unsigned budget =
      kernels_ ? std::max(kernels_->multiprocessors() / 4, least_budget) : least_budget;
  std::erase_if(grants_, [](const Grant& grant) { return has_passed(grant.until); });
  std::map<CUstream, unsigned> others;
  for (const Grant& grant : grants_) {
    if (grant.stream == stream) continue;
    unsigned& most = others[grant.stream];
    most = std::max(most, grant.blocks);
  }
  unsigned taken = 0;
  for (const auto& [other, blocks] : others) taken += blocks;
  const unsigned left = budget - std::min(budget, taken);
  const unsigned share = budget / static_cast<unsigned>(others.size() + 1);
  const unsigned granted = std::clamp(std::min(left, share), 1u, wanted);
  grants_.push_back({until, stream, granted});
  return granted;
}

void Device::return_blocks(const Turn& until) {
  const std::lock_guard lock(mutex_);
  std::erase_if(grants_, [&](const Grant& grant) {
    return grant.until.slot == until.slot && grant.until.value == until.value;
  });
}

bool Device::owns(CUstream stream) const {
  CUcontext context = nullptr;
  return driver_.stream_get_ctx(stream, &context) == kSuccess && context == context_ &&
         id_of(driver_, context) == id_;
}

void Device::gather_late() {
  std::erase_if(late_, [this](const Late& late) {
    if (!late.over()) return false;
    for (const Block& block : late.blocks) {
      spare_[static_cast<int>(block.kind)][block.bytes].push_back(block.data);
    }
    return true;
  });
}

std::byte* Device::take_spare(MemoryKind kind, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto& spare = spare_[static_cast<int>(kind)][bytes];
  if (spare.empty()) gather_late();
  if (spare.empty()) return nullptr;
  std::byte* const block = spare.back();
  spare.pop_back();
  return block;
}

std::byte* Device::take_block(MemoryKind kind, std::size_t bytes) {
  if (std::byte* const spare = take_spare(kind, bytes)) return spare;
  const Current current(*this);
  const RelaxedCapture relaxed(driver_);
  if (kind == MemoryKind::cuda) {
    CUdeviceptr address = 0;
    if (driver_.mem_alloc(&address, bytes) != kSuccess) return nullptr;
    return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
  }
  void* memory = nullptr;
  const unsigned flags = kHostAllocPortable | kHostAllocDeviceMap;
  if (driver_.host_alloc(&memory, bytes, flags) != kSuccess) return nullptr;
  return static_cast<std::byte*>(memory);
}

void Device::give_block(MemoryKind kind, std::byte* block, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  spare_[static_cast<int>(kind)][bytes].push_back(block);
}

void Device::give_later(std::vector<Block> blocks, std::function<bool()> over) {
  const std::lock_guard lock(mutex_);
  late_.push_back({std::move(blocks), std::move(over)});
}

// With unified addressing pinned memory has the same address on host and device.
Expected<Slot*> Device::add_slots(std::size_t count) {
  void* memory = nullptr;
  const Current current(*this);
  const RelaxedCapture relaxed(driver_);
  const unsigned flags = kHostAllocPortable | kHostAllocDeviceMap;
  const CUresult result = driver_.host_alloc(&memory, count * sizeof(Slot), flags);
  if (result != kSuccess) return error("cuMemHostAlloc of stream flags", result);
  auto* slots = static_cast<Slot*>(memory);
  std::uninitialized_default_construct_n(slots, count);
  return slots;
}

Slot* Device::find_fresh_slot() {
  const std::lock_guard lock(mutex_);
  if (fresh_slots_.empty()) return nullptr;
  Slot* const slot = fresh_slots_.back();
  fresh_slots_.pop_back();
  return slot;
}

// The driver is called without the lock: it may wait for streams that wait for a thread which is
// returning a slot.
Expected<Slot*> Device::take_fresh_slot() {
  while (true) {
    if (Slot* const slot = find_fresh_slot()) return slot;
    const Expected<Slot*> added = add_slots(slots_at_once);
    if (!added) return added.error();
    const std::lock_guard lock(mutex_);
    for (std::size_t i = slots_at_once; i > 0; --i) fresh_slots_.push_back(*added + i - 1);
  }
}

void Device::give_fresh_slot(Slot* slot) {
  const std::lock_guard lock(mutex_);
  fresh_slots_.push_back(slot);
}

std::optional<Device::Turn> Device::find_slot() {
  const std::lock_guard lock(mutex_);
  if (free_slots_.empty()) {
    const auto passed = std::partition(resting_.begin(), resting_.end(), std::not_fn(has_passed));
    free_slots_.assign(passed, resting_.end());
    resting_.erase(passed, resting_.end());
  }
  if (free_slots_.empty()) return std::nullopt;
  Turn turn = free_slots_.back();
  free_slots_.pop_back();
  ++turn.value;
  return turn;
}

// Locking as in take_fresh_slot().
Expected<Device::Turn> Device::take_slot() {
  while (true) {
    if (const std::optional<Turn> turn = find_slot()) return *turn;
    const Expected<Slot*> added = add_slots(slots_at_once);
    if (!added) return added.error();
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < slots_at_once; ++i) free_slots_.push_back({*added + i, 0});
  }
}

void Device::give_slot(Turn turn) {
  const std::lock_guard lock(mutex_);
  (has_passed(turn) ? free_slots_ : resting_).push_back(turn);
}

}  // namespace pith::cuda
