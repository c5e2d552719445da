// Whether a sanitizer watches, beside which everything takes several times as long.
#pragma once

namespace pith::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

}  // namespace pith::test
