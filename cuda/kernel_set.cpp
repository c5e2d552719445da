#include "cuda/kernel_set.hpp"

#include <fmt/format.h>

#include <vector>

#include "cuda/kernel_image.hpp"
#include "cuda/kernels/worker.hpp"

namespace pith::cuda {

namespace {

constexpr unsigned blocks_per_multiprocessor = 8;  // blocks of 256 threads: full occupancy

Error error(const Driver& driver, std::string_view what, CUresult result) {
  return {Code::cuda, fmt::format("{}: {}", what, driver.describe(result))};
}

Expected<CUfunction> resolve(const Driver& driver, const std::vector<CUlibrary>& libraries,
                             const char* symbol) {
  CUkernel kernel = nullptr;
  CUresult result = kErrorNotFound;
  for (CUlibrary library : libraries) {
    result = driver.library_kernel(&kernel, library, symbol);
    if (result == kSuccess) break;
  }
  CUfunction function = nullptr;
  if (result == kSuccess) result = driver.kernel_function(&function, kernel);
  // Otherwise the driver may load the function at its first launch, within a call.
  if (result == kSuccess && driver.function_load) result = driver.function_load(function);
  if (result != kSuccess) return error(driver, fmt::format("CUDA kernel {}", symbol), result);
  return function;
}

// The images with the worker's kernel, or those with all other kernels.
Expected<std::vector<CUlibrary>> load_images(const Driver& driver, bool worker) {
  std::vector<KernelImage> images(kernel_images().begin(), kernel_images().end());
  std::erase_if(images,
                [&](const KernelImage& image) { return (image.name == "worker") != worker; });
  // The stub contains the kernels and does not read images.
  if (driver.stub_launch) images.assign(1, {"stub", "stub"});
  if (images.empty()) {
    return Error(Code::cuda, "no CUDA kernels in this build: it was made without nvcc");
  }
  std::vector<CUlibrary> libraries;
  for (const KernelImage& image : images) {
    CUlibrary library = nullptr;
    const CUresult result =
        driver.library_load(&library, image.data, nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (result != kSuccess) return error(driver, "loading CUDA kernels", result);
    libraries.push_back(library);
  }
  return libraries;
}

}  // namespace

Expected<CUfunction> KernelSet::load_worker(const Driver& driver) {
  const Expected<std::vector<CUlibrary>> libraries = load_images(driver, true);
  if (!libraries) return libraries.error();
  const Expected<CUfunction> worker = resolve(driver, *libraries, worker_facts.symbol);
  if (!worker) return worker.error();
  // The worker needs more than the default limit of shared memory.
  const CUresult allowed = driver.function_set_attribute(
      *worker, kFunctionMostDynamicShared, static_cast<int>(worker_facts.shared_bytes));
  if (allowed != kSuccess) return error(driver, "shared memory of CUDA workers", allowed);
  return *worker;
}

Expected<std::unique_ptr<KernelSet>> KernelSet::load(const Driver& driver) {
  const Expected<std::vector<CUlibrary>> libraries = load_images(driver, false);
  if (!libraries) return libraries.error();
  auto set = std::make_unique<KernelSet>();
  for (std::size_t kernel = 0; kernel < kernel_count; ++kernel) {
    const Expected<CUfunction> found = resolve(driver, *libraries, kernel_facts[kernel].symbol);
    if (!found) return found.error();
    set->functions_[kernel] = *found;
  }
  CUdevice device = 0;
  int multiprocessors = 1;
  CUresult result = driver.ctx_get_device(&device);
  if (result == kSuccess) {
    result = driver.device_attribute(&multiprocessors, kDeviceMultiprocessorCount, device);
  }
  if (result != kSuccess) return error(driver, "the number of multiprocessors", result);
  set->multiprocessors_ = static_cast<unsigned>(multiprocessors);
  set->most_blocks_ = set->multiprocessors_ * blocks_per_multiprocessor;
  return set;
}

}  // namespace pith::cuda
