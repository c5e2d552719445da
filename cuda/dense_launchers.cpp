#include "cuda/dense_launchers.hpp"

#include "cuda/launch_queue.hpp"

namespace pith::cuda {

namespace {

// Kernels of one type follow each other, and so do the types.
constexpr auto first_kernel = static_cast<std::size_t>(KernelName::reduce_i8_sum);
constexpr auto kernels_of_type = static_cast<std::size_t>(KernelName::reduce_u8_sum) - first_kernel;
constexpr auto scale_place = static_cast<std::size_t>(KernelName::scale_i8) - first_kernel;
constexpr auto divide_place = static_cast<std::size_t>(KernelName::divide_i8) - first_kernel;

constexpr KernelName kernel_of(DType type, std::size_t place) {
  return static_cast<KernelName>(first_kernel + static_cast<std::size_t>(type) * kernels_of_type +
                                 place);
}
static_assert(kernel_of(DType::f8e5m2, divide_place) == KernelName::divide_f8e5m2);
static_assert(kernel_of(DType::bf16, static_cast<std::size_t>(Op::min)) ==
              KernelName::reduce_bf16_min);

constexpr std::size_t place_of(Op op) {
  return static_cast<std::size_t>(op == Op::avg ? Op::sum : op);
}

// One pack a thread and step where all arrays have their packs at the same places, else one
// element.
std::size_t blocks_for(const CombineArgs& args, std::size_t element) {
  const std::size_t bytes = args.count * element;
  const auto into = [](const void* memory) { return misalignment(memory, words_bytes); };
  bool congruent = into(args.a) == into(args.out);
  if (args.b) congruent = congruent && into(args.b) == into(args.out);
  if (args.second_out) congruent = congruent && into(args.second_out) == into(args.out);
  const std::size_t a_block = congruent ? step_bytes : dense_threads * element;
  return (bytes + a_block - 1) / a_block;
}

void launch(KernelName kernel, const CombineArgs& args, std::size_t element) {
  if (args.count == 0) return;
  LaunchQueue::current().launch_walk(kernel, blocks_for(args, element), args);
}

}  // namespace

void launch_reduce(const ReduceKernel::Args& args) {
  const CombineArgs combine{args.out, nullptr, args.a, args.b, args.count, 0, nullptr, 0};
  launch(kernel_of(args.type, place_of(args.op)), combine, size_of(args.type));
}

void launch_reduce_to_two(const ReduceToTwoKernel::Args& args) {
  const CombineArgs combine{args.out1, args.out2, args.a, args.b, args.count, 0, nullptr, 0};
  launch(kernel_of(args.type, place_of(args.op)), combine, size_of(args.type));
}

void launch_finish_avg(const FinishAvgKernel::Args& args) {
  const CombineArgs divide{args.data,  nullptr, args.data, nullptr,
                           args.count, 0,       nullptr,   args.divisor};
  launch(kernel_of(args.type, divide_place), divide, size_of(args.type));
}

void launch_scale(const ScaleKernel::Args& args) {
  const CombineArgs scale{args.out,   nullptr,   args.in,    nullptr,
                          args.count, args.bits, args.where, 0};
  launch(kernel_of(args.type, scale_place), scale, size_of(args.type));
}

// The driver's copies also serve pinned memory by its copy engines.
void launch_copy(const CopyKernel::Args& args) {
  LaunchQueue::current().copy(args.out, args.in, args.bytes);
}

}  // namespace pith::cuda
