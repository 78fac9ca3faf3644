-- The tables of RubyLLM 1.16 `acts_as_chat`, as its Rails generator makes them for SQLite.
-- Columns named foldlog_ are ours: Rails does not mind more columns.
CREATE TABLE models (
  id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  model_id VARCHAR NOT NULL,
  name VARCHAR NOT NULL,
  provider VARCHAR NOT NULL,
  family VARCHAR,
  model_created_at DATETIME(6),
  context_window INTEGER,
  max_output_tokens INTEGER,
  knowledge_cutoff DATE,
  modalities JSON DEFAULT '{}' CHECK (json_valid(modalities)),
  capabilities JSON DEFAULT '[]' CHECK (json_valid(capabilities)),
  pricing JSON DEFAULT '{}' CHECK (json_valid(pricing)),
  metadata JSON DEFAULT '{}' CHECK (json_valid(metadata)),
  created_at DATETIME(6) NOT NULL,
  updated_at DATETIME(6) NOT NULL
);
CREATE UNIQUE INDEX index_models_on_provider_and_model_id ON models (provider, model_id);
CREATE INDEX index_models_on_provider ON models (provider);
CREATE INDEX index_models_on_family ON models (family);

CREATE TABLE chats (
  id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  model_id INTEGER REFERENCES models (id),
  created_at DATETIME(6) NOT NULL,
  updated_at DATETIME(6) NOT NULL,
  foldlog_session_id VARCHAR NOT NULL UNIQUE,
  foldlog_user_id VARCHAR,
  foldlog_state JSON NOT NULL CHECK (json_valid(foldlog_state))
);
CREATE INDEX index_chats_on_model_id ON chats (model_id);

CREATE TABLE messages (
  id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  role VARCHAR NOT NULL CHECK (role IN ('system', 'user', 'assistant', 'tool')),
  content TEXT,
  content_raw JSON CHECK (content_raw IS NULL OR json_valid(content_raw)),
  thinking_text TEXT,
  thinking_signature TEXT,
  thinking_tokens INTEGER,
  input_tokens INTEGER,
  output_tokens INTEGER,
  cached_tokens INTEGER,
  cache_creation_tokens INTEGER,
  created_at DATETIME(6) NOT NULL,
  updated_at DATETIME(6) NOT NULL,
  chat_id INTEGER NOT NULL REFERENCES chats (id),
  model_id INTEGER REFERENCES models (id),
  tool_call_id INTEGER REFERENCES tool_calls (id),
  foldlog_message_id VARCHAR,
  foldlog_offset INTEGER,
  foldlog_status VARCHAR NOT NULL
    CHECK (foldlog_status IN ('complete', 'partial', 'not_said', 'missing')),
  foldlog_blocks TEXT,
  CHECK (role = 'tool' OR tool_call_id IS NULL),
  CHECK (role != 'tool' OR tool_call_id IS NOT NULL)
);
CREATE INDEX index_messages_on_role ON messages (role);
CREATE INDEX index_messages_on_chat_id ON messages (chat_id);
CREATE INDEX index_messages_on_model_id ON messages (model_id);
CREATE INDEX index_messages_on_tool_call_id ON messages (tool_call_id);

CREATE TABLE tool_calls (
  id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  tool_call_id VARCHAR NOT NULL,
  name VARCHAR NOT NULL,
  thought_signature TEXT,
  arguments JSON DEFAULT '{}' CHECK (json_valid(arguments)),
  created_at DATETIME(6) NOT NULL,
  updated_at DATETIME(6) NOT NULL,
  message_id INTEGER NOT NULL REFERENCES messages (id),
  foldlog_call VARCHAR NOT NULL,
  foldlog_call_id VARCHAR NOT NULL,
  foldlog_arguments TEXT,
  foldlog_status VARCHAR NOT NULL,
  foldlog_outcome VARCHAR
);
CREATE UNIQUE INDEX index_tool_calls_on_tool_call_id ON tool_calls (tool_call_id);
CREATE INDEX index_tool_calls_on_name ON tool_calls (name);
CREATE INDEX index_tool_calls_on_message_id ON tool_calls (message_id);

-- Active Storage of Rails 8: `has_many_attached :attachments` of a message.
CREATE TABLE active_storage_blobs (
  id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  key VARCHAR NOT NULL,
  filename VARCHAR NOT NULL,
  content_type VARCHAR,
  metadata TEXT CHECK (json_valid(metadata)),
  service_name VARCHAR NOT NULL,
  byte_size BIGINT NOT NULL,
  checksum VARCHAR,
  created_at DATETIME(6) NOT NULL,
  foldlog_sha256 VARCHAR NOT NULL,
  foldlog_data BLOB
);
CREATE UNIQUE INDEX index_active_storage_blobs_on_key ON active_storage_blobs (key);

CREATE TABLE active_storage_attachments (
  id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  name VARCHAR NOT NULL,
  record_type VARCHAR NOT NULL,
  record_id BIGINT NOT NULL,
  blob_id BIGINT NOT NULL REFERENCES active_storage_blobs (id),
  created_at DATETIME(6) NOT NULL
);
CREATE INDEX index_active_storage_attachments_on_blob_id ON active_storage_attachments (blob_id);
CREATE UNIQUE INDEX index_active_storage_attachments_uniqueness
  ON active_storage_attachments (record_type, record_id, name, blob_id);

CREATE TABLE active_storage_variant_records (
  id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  blob_id BIGINT NOT NULL REFERENCES active_storage_blobs (id),
  variation_digest VARCHAR NOT NULL
);
CREATE UNIQUE INDEX index_active_storage_variant_records_uniqueness
  ON active_storage_variant_records (blob_id, variation_digest);
