CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL, city text, since date NOT NULL);
CREATE TABLE orders (id bigint PRIMARY KEY, customer_id bigint REFERENCES customers, placed timestamptz NOT NULL);
CREATE TABLE order_lines (order_id bigint REFERENCES orders, sku text, quantity int, price numeric(10, 2));
