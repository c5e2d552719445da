#include "streams/cuda_vectors.hpp"

#include <map>

#include "core/failure.hpp"

namespace pith {

namespace {

// Block sizes are rounded up to this, so that a freed block fits a later request.
constexpr std::size_t granule = std::size_t{64} << 10;
std::size_t rounded(std::size_t bytes) { return (bytes + granule - 1) / granule * granule; }

// Waits for each kernel, which is short since kernels wait for no peer. They run on a stream of
// their own, because other work on the device may wait for the calling thread.
class Waiting final : public Compute {
 public:
  explicit Waiting(std::unique_ptr<cuda::CudaCompute> queue) : queue_(std::move(queue)) {
    adopt_kernels(*queue_);
  }
  MemoryKind kind() const override { return MemoryKind::cuda; }
  bool reached(Fence) const override { return true; }
  void notify(FenceWait& wait) override { wait.reached(wait); }
  bool progress() override { return false; }
  std::byte* take_scratch(std::size_t bytes) override { return queue_->take_scratch(bytes); }
  void give_scratch(std::byte* memory, std::size_t bytes) override {
    queue_->give_scratch(memory, bytes);
  }

 protected:
  Fence submit(Implementation implementation, const void* args, std::size_t args_bytes,
               std::size_t work_bytes, Fence) override {
    const std::lock_guard lock(mutex_);
    const Fence end = submit_to(*queue_, implementation, args, args_bytes, work_bytes, {});
    queue_->wait(end);
    if (!queue_->error()) return {};
    const Error error = queue_->error();
    queue_->begin_anew();
    throw Failure(error);
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<cuda::CudaCompute> queue_;
};

}  // namespace

CudaVectors::CudaVectors(cuda::Device& device, std::unique_ptr<cuda::CudaCompute> queue)
    : device_(device),
      pinned_(device, host_),
      waiting_(std::make_unique<Waiting>(std::move(queue))) {}

CudaVectors::~CudaVectors() = default;

Expected<CudaVectors*> CudaVectors::of(cuda::Device& device) {
  static std::mutex mutex;
  static auto& known = *new std::map<cuda::Device*, CudaVectors*>;
  const std::lock_guard lock(mutex);
  CudaVectors*& vectors = known[&device];
  if (vectors) return vectors;
  Expected<std::unique_ptr<cuda::CudaCompute>> queue = cuda::CudaCompute::create(device);
  if (!queue) return queue.error();
  vectors = new CudaVectors(device, std::move(*queue));
  return vectors;
}

std::byte* CudaVectors::take(std::size_t bytes) {
  return device_.take_block(MemoryKind::cuda, rounded(bytes));
}

void CudaVectors::give(std::byte* memory, std::size_t bytes) {
  device_.give_block(MemoryKind::cuda, memory, rounded(bytes));
}

}  // namespace pith
