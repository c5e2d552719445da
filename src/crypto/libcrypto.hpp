// OpenSSL's ciphers, loaded at first use.
//
// Linked statically they would add 4 MB, and the process may have another libcrypto, which this
// then uses. Only encrypted connections need it.
#pragma once

#include <openssl/evp.h>

#include "core/error.hpp"

namespace pith {

struct Libcrypto {
  Error why_not;  // null: all functions are there

  decltype(&::EVP_CIPHER_CTX_new) context_new = nullptr;
  decltype(&::EVP_CIPHER_CTX_free) context_free = nullptr;
  decltype(&::EVP_CIPHER_CTX_ctrl) control = nullptr;
  decltype(&::EVP_aes_256_gcm) aes_256_gcm = nullptr;
  decltype(&::EVP_CipherInit_ex) init = nullptr;
  decltype(&::EVP_CipherUpdate) update = nullptr;
  decltype(&::EVP_CipherFinal_ex) finish = nullptr;
};

// Loaded once, never unloaded. Thread-safe.
const Libcrypto& libcrypto();

}  // namespace pith
