// fmt's functions, compiled once into the library, so that it needs no libfmt at run time. With
// fmt's own option FMT_HEADER_ONLY each source that formats would take 2.6 s more to compile.
// Complete for fmt 9 to 12.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE

namespace detail {

template dragonbox::decimal_fp<float> dragonbox::to_decimal(float value) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal(double value) noexcept;
template thousands_sep_result<char> thousands_sep_impl(locale_ref locale);
template char decimal_point_impl(locale_ref locale);
#if FMT_VERSION >= 100000 && FMT_VERSION < 120000
template void vformat_to(buffer<char>& out, string_view format, vformat_args<>::type arguments,
                         locale_ref locale);
#endif

}  // namespace detail

FMT_END_NAMESPACE
