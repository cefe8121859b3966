#pragma once

#include "store/rocksdb_store.hpp"

#include <rocksdb/options.h>

/// The configuration of RocksDB. Belongs to rocksdb_store.cpp; no other file includes RocksDB.

namespace troupe::store {

rocksdb::Options database_options(const rocksdb_store_options& wanted);

/// Options for reading everything once, in order.
rocksdb::ReadOptions scan_options();

} // namespace troupe::store
