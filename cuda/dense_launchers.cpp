#include "cuda/dense_launchers.hpp"

#include <algorithm>
#include <span>

#include "cuda/launch_queue.hpp"

namespace pith::cuda {

namespace {

// KernelName is ordered by type, then by kernel within a type.
constexpr auto first_kernel = static_cast<std::size_t>(KernelName::reduce_i8_sum);
constexpr auto kernels_of_type = static_cast<std::size_t>(KernelName::reduce_u8_sum) - first_kernel;
constexpr auto scale_place = static_cast<std::size_t>(KernelName::scale_i8) - first_kernel;
constexpr auto divide_place = static_cast<std::size_t>(KernelName::divide_i8) - first_kernel;

constexpr KernelName kernel_of(DType type, std::size_t place) {
  return static_cast<KernelName>(first_kernel + static_cast<std::size_t>(type) * kernels_of_type +
                                 place);
}
static_assert(kernel_of(DType::f8e5m2, divide_place) == KernelName::divide_f8e5m2);

// Complex numbers have kernels of products; in other calls they are twice as many reals.
constexpr auto first_complex = static_cast<std::size_t>(KernelName::reduce_c64_prod);
constexpr auto complex_kernels =
    static_cast<std::size_t>(KernelName::reduce_c128_prod) - first_complex;

constexpr KernelName complex_kernel_of(DType type, KernelName of_c64) {
  const std::size_t kind = type == DType::c64 ? 0 : 1;
  return static_cast<KernelName>(static_cast<std::size_t>(of_c64) + kind * complex_kernels);
}
static_assert(complex_kernel_of(DType::c128, KernelName::scale_c64) == KernelName::scale_c128);

template <class Args>
Args of_parts(Args args) {
  args.count *= 2;
  args.type = part_of(args.type);
  return args;
}

// Operations on bits are ordered by the elements' size, of which integers have three.
constexpr auto first_bits = static_cast<std::size_t>(KernelName::reduce_b8_band);
constexpr auto bit_kernels = static_cast<std::size_t>(KernelName::reduce_b32_band) - first_bits;

constexpr KernelName kernel_of(DType type, Op op) {
  if (is_complex(type)) return complex_kernel_of(type, KernelName::reduce_c64_prod);
  const auto place = static_cast<std::size_t>(op == Op::avg ? Op::sum : op);
  if (op < Op::band) return kernel_of(type, place);
  const std::size_t size = size_of(type) == 1 ? 0 : size_of(type) == 4 ? 1 : 2;
  return static_cast<KernelName>(first_bits + size * bit_kernels + place -
                                 static_cast<std::size_t>(Op::band));
}
static_assert(kernel_of(DType::bf16, Op::min) == KernelName::reduce_bf16_min);
static_assert(kernel_of(DType::i8, Op::band) == KernelName::reduce_b8_band);
static_assert(kernel_of(DType::u32, Op::land) == KernelName::reduce_b32_land);
static_assert(kernel_of(DType::i64, Op::lxor) == KernelName::reduce_b64_lxor);

// A thread handles one pack per step if all outputs are equally aligned, else one element.
std::size_t blocks_for(std::size_t bytes, std::size_t element, std::span<std::byte* const> out) {
  const std::size_t into = misalignment(out[0], words_bytes);
  const bool congruent =
      into % element == 0 && std::all_of(out.begin(), out.end(), [&](const std::byte* memory) {
        return misalignment(memory, words_bytes) == into;
      });
  const std::size_t a_block = congruent ? step_bytes : dense_threads * element;
  return (bytes + a_block - 1) / a_block;
}

void launch(KernelName kernel, const MapArgs& args, std::size_t element) {
  if (args.count == 0) return;
  const std::size_t blocks = blocks_for(args.count * element, element, {&args.out, 1});
  LaunchQueue::current().launch_walk(kernel, blocks, args);
}

std::size_t blocks_for(DType type, const ReduceArgs& args) {
  const std::size_t element = size_of(type);
  return blocks_for(args.count * element, element, {args.out, args.outputs});
}

}  // namespace

void launch_reduce(const ReduceKernel::Args& args) {
  if (args.count == 0) return;
  if (is_complex(args.type) && args.op != Op::prod) return launch_reduce(of_parts(args));
  const ReduceArgs reduce{args.count, 2, 1, 0, {args.a, args.b}, {args.out}};
  LaunchQueue::current().launch_walk(kernel_of(args.type, args.op), blocks_for(args.type, reduce),
                                     reduce);
}

void launch_reduce_many(const ReduceManyKernel::Args& args) {
  static_assert(ReduceManyKernel::most_operands <= most_operands);
  if (args.count == 0) return;
  if (is_complex(args.type) && args.op != Op::prod) return launch_reduce_many(of_parts(args));
  ReduceArgs reduce{args.count, args.inputs, args.outputs, args.divisor, {}, {}};
  std::copy_n(args.in.begin(), args.inputs, reduce.in);
  std::copy_n(args.out.begin(), args.outputs, reduce.out);
  LaunchQueue::current().launch_shared(kernel_of(args.type, args.op), blocks_for(args.type, reduce),
                                       reduce);
}

void launch_finish_avg(const FinishAvgKernel::Args& args) {
  if (is_complex(args.type)) return launch_finish_avg(of_parts(args));
  const MapArgs divide{args.data, args.data, args.count, {}, nullptr, args.divisor};
  launch(kernel_of(args.type, divide_place), divide, size_of(args.type));
}

void launch_scale(const ScaleKernel::Args& args) {
  const MapArgs scale{args.out, args.in, args.count, {args.bits[0], args.bits[1]}, args.where, 0};
  const KernelName kernel = is_complex(args.type)
                                ? complex_kernel_of(args.type, KernelName::scale_c64)
                                : kernel_of(args.type, scale_place);
  launch(kernel, scale, size_of(args.type));
}

// The driver's copies also move pinned memory, by the device's copy engines.
void launch_copy(const CopyKernel::Args& args) {
  LaunchQueue::current().copy(args.out, args.in, args.bytes);
}

}  // namespace pith::cuda
