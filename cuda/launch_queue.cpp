#include "cuda/launch_queue.hpp"

#include <algorithm>
#include <cassert>
#include <limits>

namespace pith::cuda {

namespace {

constexpr std::size_t smallest_workspace = std::size_t{1} << 20;
thread_local LaunchQueue* submitting = nullptr;

}  // namespace

LaunchQueue& LaunchQueue::current() {
  assert(submitting);
  return *submitting;
}

LaunchQueue::~LaunchQueue() {
  for (const Memory& memory : workspaces_) scratch_.give(memory.data, memory.bytes);
}

CUresult LaunchQueue::run(void (*launcher)(const void* args), const void* args) {
  result_ = kSuccess;
  submitting = this;
  launcher(args);
  submitting = nullptr;
  return result_;
}

void LaunchQueue::enqueue(KernelName name, std::size_t blocks, void* args, std::size_t args_bytes) {
  if (result_ != kSuccess) return;
  const KernelFacts& facts = kernel_facts[static_cast<std::size_t>(name)];
  assert(facts.args_bytes == args_bytes);
  if (args_bytes != facts.args_bytes || blocks > std::numeric_limits<std::int32_t>::max()) {
    return refuse();
  }
  if (by_worker()) {
    if (blocks > Worker::most_blocks) return refuse();
    const bool pushed = workers_->push(static_cast<std::uint32_t>(name), blocks, args, args_bytes);
    if (!pushed) result_ = kErrorLaunchFailed;
    return;
  }
  void* params[] = {args};
  result_ = driver_.launch_kernel(kernels_.function(name), static_cast<unsigned>(blocks), 1, 1,
                                  facts.threads, 1, 1, 0, stream_, params, nullptr);
}

void LaunchQueue::copy(void* to, const void* from, std::size_t bytes) {
  if (result_ != kSuccess || bytes == 0) return;
  if (by_worker()) {
    MapArgs args{};
    args.out = static_cast<std::byte*>(to);
    args.in = static_cast<const std::byte*>(from);
    args.count = bytes;
    return launch_walk(KernelName::copy, (bytes + step_bytes - 1) / step_bytes, args);
  }
  result_ = driver_.memcpy_async(address_of(to), address_of(from), bytes, stream_);
}

void LaunchQueue::fill(void* to, unsigned char value, std::size_t bytes) {
  if (result_ != kSuccess || bytes == 0) return;
  if (by_worker()) {
    const FillArgs args{static_cast<std::byte*>(to), bytes, value};
    return launch_walk(KernelName::fill, (bytes + step_bytes - 1) / step_bytes, args);
  }
  result_ = driver_.memset_async(address_of(to), value, bytes, stream_);
}

std::byte* LaunchQueue::workspace(std::size_t bytes) {
  if (workspaces_.empty() || workspaces_.back().bytes < bytes) {
    const std::size_t room =
        workspaces_.empty() ? smallest_workspace : 2 * workspaces_.back().bytes;
    const std::size_t taken = std::max(bytes, room);
    workspaces_.push_back({scratch_.take(taken), taken});
  }
  return workspaces_.back().data;
}

}  // namespace pith::cuda
