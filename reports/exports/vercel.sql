-- Chats, messages and parts as the Vercel AI SDK's persistence example lays them out, for SQLite.
-- A pair of columns per tool is added when the file is made: see vercel.py. Ours are
-- messages.metadata and messages.foldlog_seq, and the data part `data-foldlog`.
CREATE TABLE chats (
  id VARCHAR PRIMARY KEY NOT NULL
);

CREATE TABLE messages (
  id VARCHAR PRIMARY KEY NOT NULL,
  "chatId" VARCHAR NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
  "createdAt" TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  role VARCHAR NOT NULL CHECK (role IN ('system', 'user', 'assistant')),
  metadata JSON CHECK (metadata IS NULL OR json_valid(metadata)),
  foldlog_seq INTEGER NOT NULL,
  UNIQUE ("chatId", foldlog_seq)
);
CREATE INDEX messages_chat_id_idx ON messages ("chatId");
CREATE INDEX messages_chat_id_created_at_idx ON messages ("chatId", "createdAt");

CREATE TABLE parts (
  id VARCHAR PRIMARY KEY NOT NULL,
  "messageId" VARCHAR NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
  type VARCHAR NOT NULL,
  "createdAt" TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  "order" INTEGER NOT NULL DEFAULT 0,
  text_text TEXT,
  reasoning_text TEXT,
  "file_mediaType" VARCHAR,
  file_filename VARCHAR,
  file_url VARCHAR,
  "source_url_sourceId" VARCHAR,
  source_url_url VARCHAR,
  source_url_title VARCHAR,
  "source_document_sourceId" VARCHAR,
  "source_document_mediaType" VARCHAR,
  source_document_title VARCHAR,
  source_document_filename VARCHAR,
  "tool_toolCallId" VARCHAR,
  tool_state VARCHAR CHECK (tool_state IS NULL OR tool_state IN (
    'input-streaming', 'input-available', 'approval-requested', 'approval-responded',
    'output-available', 'output-error', 'output-denied')),
  "tool_errorText" VARCHAR,
  /* tools */
  "dynamic_tool_toolName" VARCHAR,
  dynamic_tool_input JSON,
  dynamic_tool_output JSON,
  data_foldlog_kind VARCHAR,
  data_foldlog_offset INTEGER,
  data_foldlog_data JSON,
  "providerMetadata" JSON CHECK ("providerMetadata" IS NULL OR json_valid("providerMetadata")),
  UNIQUE ("messageId", "order"),
  CONSTRAINT type_is_known CHECK (/* types */),
  CONSTRAINT text_text_required_if_type_is_text
    CHECK (CASE WHEN type = 'text' THEN text_text IS NOT NULL ELSE TRUE END),
  CONSTRAINT reasoning_text_required_if_type_is_reasoning
    CHECK (CASE WHEN type = 'reasoning' THEN reasoning_text IS NOT NULL ELSE TRUE END),
  CONSTRAINT file_fields_required_if_type_is_file
    CHECK (CASE WHEN type = 'file'
           THEN "file_mediaType" IS NOT NULL AND file_url IS NOT NULL ELSE TRUE END),
  CONSTRAINT source_url_fields_required_if_type_is_source_url
    CHECK (CASE WHEN type = 'source_url'
           THEN "source_url_sourceId" IS NOT NULL AND source_url_url IS NOT NULL ELSE TRUE END),
  CONSTRAINT source_document_fields_required_if_type_is_source_document
    CHECK (CASE WHEN type = 'source_document'
           THEN "source_document_sourceId" IS NOT NULL AND "source_document_mediaType" IS NOT NULL
                AND source_document_title IS NOT NULL ELSE TRUE END),
  /* checks */
  CONSTRAINT dynamic_tool_fields_required
    CHECK (CASE WHEN type = 'dynamic-tool'
           THEN "dynamic_tool_toolName" IS NOT NULL AND "tool_toolCallId" IS NOT NULL
                AND tool_state IS NOT NULL ELSE TRUE END),
  CONSTRAINT data_foldlog_fields_required
    CHECK (CASE WHEN type = 'data-foldlog'
           THEN data_foldlog_kind IS NOT NULL AND json_valid(data_foldlog_data) ELSE TRUE END)
);
CREATE INDEX parts_message_id_idx ON parts ("messageId");
CREATE INDEX parts_message_id_order_idx ON parts ("messageId", "order");
