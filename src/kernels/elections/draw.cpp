// Draws: a hash for each element and a comparison; at low densities most vectors have nothing that
// passes.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elections/draw.cpp"
#include "hwy/foreach_target.h"
// Highway requires this order of includes.
#include "hwy/highway.h"
#include "kernels/coded_block.hpp"
#include "kernels/elections/elections.hpp"
#include "kernels/sparse.hpp"
#include "kernels/values-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void draw_from(const DrawKernel::Args& args) { scalar::draw(args); }

#else

// As drawn_bits(); `start`: index times DrawHash::spread plus the key's low word.
HWY_INLINE Word hashed(Word start, Word high) {
  Word x = hn::Mul(hn::Xor(start, hn::ShiftRight<16>(start)), constant(DrawHash::first));
  x = hn::Xor(x, high);
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), constant(DrawHash::second));
  return hn::Xor(x, hn::ShiftRight<16>(x));
}

void draw_from(const DrawKernel::Args& args) {
  const Floats d;
  const Words words;
  const std::size_t lanes = hn::Lanes(d);
  const Word low = constant(static_cast<std::uint32_t>(args.key));
  const Word high = constant(static_cast<std::uint32_t>(args.key >> 32));
  const Float sure = hn::Set(d, args.sure);
  Double squares0 = hn::Zero(Doubles()), squares1 = squares0;
  std::size_t selected = 0;  // at most i: there is room for whole vectors
  std::size_t i = 0;
  for (; i + lanes <= args.count; i += lanes) {
    const Float value = hn::LoadU(d, args.accumulator + i);
    add_squares(value, squares0, squares1);
    const Word index =
        hn::Add(hn::Iota(words, 0), constant(args.first + static_cast<std::uint32_t>(i)));
    const Word bits = hashed(hn::Add(hn::Mul(index, constant(DrawHash::spread)), low), high);
    const Word steps = hn::Add(hn::ShiftRight<8>(bits), constant(1));
    const Float drawn =
        hn::Mul(hn::ConvertTo(d, hn::BitCast(Integers(), steps)), hn::Set(d, 0x1p-24f));
    const Float size = hn::Abs(value);
    const auto passes = hn::Ge(size, hn::Mul(drawn, sure));
    if (hn::AllFalse(d, passes)) continue;
    const Float sent = hn::CopySign(hn::Max(size, sure), value);
    const Compression compress(hn::RebindMask(Integers(), passes));
    hn::StoreU(compress(words, index), words, args.indices + selected);
    hn::StoreU(compress(d, sent), d, args.values + selected);
    selected += compress.count;
    hn::StoreU(hn::IfThenElse(passes, hn::Sub(value, sent), value), d, args.accumulator + i);
  }
  PassResult rest;
  scalar::draw({args.accumulator + i, args.count - i, args.sure, args.key,
                args.first + static_cast<std::uint32_t>(i), args.indices + selected,
                args.values + selected, &rest});
  *args.result = {selected + rest.selected, 0, total(squares0, squares1) + rest.squares};
}

#endif
}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pith::kernels {

HWY_EXPORT(draw_from);

void draw(const DrawKernel::Args& args) { HWY_DYNAMIC_DISPATCH(draw_from)(args); }

}  // namespace pith::kernels
#endif
